import { HubError } from '@streaming-hub/contract';
import type { FastifySchemaCompiler } from 'fastify';
import type { TSchema } from 'typebox';
import { Compile } from 'typebox/compile';
import { Settings } from 'typebox/system';
import { Value } from 'typebox/value';
import type { SchemaNode } from './expectation.ts';
import { toFieldErrors } from './field-errors.ts';

/** Faults looked at in one request; TypeBox's own 8 hide the later fields. */
const faults_max = 100;
Settings.Set({ maxErrors: faults_max });

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
    const first = errors[0] ?? { field: '', message: 'is not usable' };
    const named = first.field === '' ? `The ${part}` : first.field;
    const detail = `${named} ${first.message}.`;
    return { error: new HubError('validation_failed', detail, { errors }) };
  };
};
