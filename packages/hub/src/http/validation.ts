import { type FieldError, HubError } from '@streaming-hub/contract';
import type { FastifySchemaCompiler } from 'fastify';
import type { TSchema } from 'typebox';
import { Compile } from 'typebox/compile';
import type { TLocalizedValidationError } from 'typebox/error';
import { Value } from 'typebox/value';
import { expectation, nodeAt, type SchemaNode } from './expectation.ts';

/**
 * Validates with TypeBox and answers with our own error, which names each field and what to do.
 * Only texts (query, path) are converted; a body is taken as it is.
 */
export const validatorCompiler: FastifySchemaCompiler<TSchema> = ({ schema, httpPart }) => {
  const validator = Compile(schema);
  return (given: unknown) => {
    const value = httpPart === 'body' ? given : Value.Convert(schema, given);
    if (validator.Check(value)) return { value };
    const errors = toFieldErrors(validator.Errors(value), schema as SchemaNode);
    const part = httpPart === 'querystring' ? 'query' : httpPart === 'params' ? 'path' : 'body';
    const detail = errors[0]
      ? `${errors[0].field === '' ? `The ${part}` : errors[0].field} ${errors[0].message}.`
      : `The ${part} is not usable.`;
    return { error: new HubError('validation_failed', detail, { errors }) };
  };
};

/** One entry per field at fault; of a choice only the choice itself is reported, not each alternative. */
export function toFieldErrors(
  faults: readonly TLocalizedValidationError[],
  schema: SchemaNode,
): readonly FieldError[] {
  const choices = faults.filter((fault) => fault.keyword === 'anyOf');
  const insideChoice = (fault: TLocalizedValidationError) =>
    choices.some((choice) => fault.schemaPath.startsWith(`${choice.schemaPath}/anyOf/`));
  return faults
    .filter((fault) => fault.keyword !== 'boolean' && !insideChoice(fault))
    .flatMap((fault) => toFieldError(fault, schema));
}

function toFieldError(fault: TLocalizedValidationError, schema: SchemaNode): FieldError[] {
  const path = fault.instancePath.split('/').slice(1);
  const at = (name?: string) => (name === undefined ? path : [...path, name]).join('.');
  if (fault.keyword === 'required') {
    return fault.params.requiredProperties.map((name) => ({
      field: at(name),
      message: `is required and missing: ${required(schema, fault.schemaPath, name)}`,
      code: 'required',
    }));
  }
  if (fault.keyword === 'additionalProperties') {
    return fault.params.additionalProperties.map((name) => ({
      field: at(name),
      message: 'is not known here: remove it or correct its name',
      code: 'unknown_field',
    }));
  }
  return [
    {
      field: at(),
      message: `must be ${expectation(nodeAt(schema, fault.schemaPath))}`,
      code: 'invalid',
    },
  ];
}

function required(schema: SchemaNode, pointer: string, name: string): string {
  return `give ${expectation(nodeAt(schema, `${pointer}/properties/${name}`))}`;
}
