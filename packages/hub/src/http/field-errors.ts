import type { FieldError } from '@streaming-hub/contract';
import type { TLocalizedValidationError } from 'typebox/error';
import { expectation, nodeAt, type SchemaNode } from './expectation.ts';

type Fault = TLocalizedValidationError;

/**
 * One entry per field at fault, each with what to do. Of a choice (`a or b`) its alternatives are
 * not reported one by one: when the value has the type of exactly one of them, what is wrong with
 * it as that one; else what the choice accepts.
 */
export function toFieldErrors(faults: readonly Fault[], schema: SchemaNode): readonly FieldError[] {
  const choices = faults.filter((fault) => fault.keyword === 'anyOf');
  const reported = faults.filter((fault) => {
    if (fault.keyword === 'boolean') return false;
    if (fault.keyword === 'anyOf' && nearMiss(fault, faults) !== null) return false;
    return choices.every((choice) => {
      if (!fault.schemaPath.startsWith(`${choice.schemaPath}/anyOf/`)) return true;
      const near = nearMiss(choice, faults);
      return near !== null && inside(fault, near);
    });
  });
  return reported.flatMap((fault) => toFieldError(fault, schema));
}

/** The path of the only alternative whose type fits the value, or null. */
function nearMiss(choice: Fault, faults: readonly Fault[]): string | null {
  const prefix = `${choice.schemaPath}/anyOf/`;
  const alternatives = new Map<string, boolean>();
  for (const fault of faults) {
    if (!fault.schemaPath.startsWith(prefix)) continue;
    const index = fault.schemaPath.slice(prefix.length).split('/', 1)[0] ?? '';
    const wrongType =
      fault.schemaPath === prefix + index && ['type', 'const', 'enum'].includes(fault.keyword);
    alternatives.set(index, (alternatives.get(index) ?? true) && !wrongType);
  }
  const fitting = [...alternatives].filter(([, fits]) => fits);
  return fitting.length === 1 && fitting[0] ? prefix + fitting[0][0] : null;
}

function inside(fault: Fault, path: string): boolean {
  return fault.schemaPath === path || fault.schemaPath.startsWith(`${path}/`);
}

function toFieldError(fault: Fault, schema: SchemaNode): FieldError[] {
  const path = fault.instancePath
    .split('/')
    .slice(1)
    .map((name) => name.replaceAll('~1', '/').replaceAll('~0', '~'));
  const at = (name?: string) => (name === undefined ? path : [...path, name]).join('.');
  if (fault.keyword === 'required') {
    return fault.params.requiredProperties.map((name) => {
      const node = nodeAt(schema, `${fault.schemaPath}/properties/${name}`);
      return {
        field: at(name),
        message: `is required and missing: give ${expectation(node)}`,
        code: 'required',
      };
    });
  }
  if (fault.keyword === 'additionalProperties') {
    return fault.params.additionalProperties.map((name) => ({
      field: at(name),
      message: 'is not known here: remove it or correct its name',
      code: 'unknown_field',
    }));
  }
  const message = `must be ${expectation(nodeAt(schema, fault.schemaPath))}`;
  return [{ field: at(), message, code: 'invalid' }];
}
