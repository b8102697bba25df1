/** The parts of a JSON Schema that a sentence can be made of. `expects` is ours: the words for a pattern. */
export interface SchemaNode {
  readonly type?: string;
  readonly const?: unknown;
  readonly enum?: readonly unknown[];
  readonly anyOf?: readonly SchemaNode[];
  readonly items?: SchemaNode;
  readonly pattern?: string;
  readonly expects?: string;
  readonly minimum?: number;
  readonly maximum?: number;
  readonly minLength?: number;
  readonly maxLength?: number;
  readonly minItems?: number;
  readonly maxItems?: number;
}

/** What a schema accepts, in words that complete "must be …". */
export function expectation(node: SchemaNode): string {
  if (node.expects !== undefined) return node.expects;
  if (node.const !== undefined) return JSON.stringify(node.const);
  if (node.enum) return `one of ${node.enum.map((value) => JSON.stringify(value)).join(', ')}`;
  if (node.anyOf) return alternatives(node.anyOf);
  switch (node.type) {
    case 'integer':
      return `a whole number${between(node.minimum, node.maximum, '')}`;
    case 'number':
      return `a number${between(node.minimum, node.maximum, '')}`;
    case 'string':
      if (node.pattern !== undefined) return `text that matches ${node.pattern}`;
      return `text${between(node.minLength, node.maxLength, ' characters long')}`;
    case 'array':
      return `a list${between(node.minItems, node.maxItems, ' members long')}`;
    case 'boolean':
      return 'true or false';
    case 'object':
      return 'a JSON object';
    case 'null':
      return 'null';
    case undefined:
    default:
      return 'another value';
  }
}

function alternatives(nodes: readonly SchemaNode[]): string {
  const constants = nodes.filter((node) => node.const !== undefined);
  if (constants.length === nodes.length) {
    return `one of ${nodes.map((node) => JSON.stringify(node.const)).join(', ')}`;
  }
  return nodes.map(expectation).join(' or ');
}

function between(least: number | undefined, most: number | undefined, what: string): string {
  if (least !== undefined && most !== undefined) return ` from ${least} to ${most}${what}`;
  if (least !== undefined) return ` of at least ${least}${what}`;
  return most === undefined ? '' : ` of at most ${most}${what}`;
}

/** Follows a pointer such as `#/properties/limit` into a schema. */
export function nodeAt(schema: SchemaNode, pointer: string): SchemaNode {
  let node: unknown = schema;
  for (const raw of pointer.split('/').slice(1)) {
    const key = raw.replaceAll('~1', '/').replaceAll('~0', '~');
    node = (node as Record<string, unknown> | undefined)?.[key];
  }
  return (node ?? {}) as SchemaNode;
}
