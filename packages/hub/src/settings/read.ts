import { SettingsError } from './error.ts';
import { readKeks } from './kek.ts';
import { checkTogether } from './rules.ts';
import type { Basis, Setting } from './setting.ts';
import { settingPrefix } from './setting.ts';
import { nearestName } from './suggest.ts';
import { type DeclaredSettings, retiredSettings, settingsTable } from './table/index.ts';
import type { Settings } from './types.ts';

type Environment = Readonly<Record<string, string | undefined>>;

const settings = Object.entries(settingsTable) as readonly [
  keyof DeclaredSettings,
  Setting<unknown>,
][];
const knownNames = settings.map(([, setting]) => setting.name);

/**
 * Reads, checks and completes the configuration. An empty variable counts as absent, because
 * charts and compose files ship blanks.
 * @throws SettingsError with one sentence that says what to do.
 */
export function readSettings(environment: Environment): Settings {
  const env = withoutBlanks(environment);
  refuseUnknown(env);
  const basis = readBasis(env);
  const declared = Object.fromEntries(
    settings.map(([key, setting]) => [key, readOne(env, setting, basis)]),
  ) as unknown as DeclaredSettings;
  const read: Settings = {
    ...declared,
    ...basis,
    embeddedPostgres: declared.postgresDsn === null,
    embeddedStream: declared.kafkaBrokers.length === 0,
    keks: readKeks(declared.kekRef, env),
    given: new Set(knownNames.filter((name) => env[name] !== undefined)),
  };
  checkTogether(read);
  return read;
}

function withoutBlanks(environment: Environment): Environment {
  return Object.fromEntries(
    Object.entries(environment).filter(([, value]) => value !== undefined && value.trim() !== ''),
  );
}

function refuseUnknown(env: Environment): void {
  // The key variables may carry the common prefix too: they are named by the operator.
  const named = new Set(env[settingsTable.kekRef.name]?.split(',').map((name) => name.trim()));
  for (const name of Object.keys(env)) {
    if (!name.startsWith(settingPrefix) || knownNames.includes(name) || named.has(name)) continue;
    const retired = retiredSettings.find(([pattern]) => pattern.test(name));
    if (retired)
      throw new SettingsError(name, `${name} is not a setting of this hub: ${retired[1]}.`);
    const nearest = nearestName(name, knownNames);
    const advice = nearest
      ? `did you mean ${nearest}?`
      : 'remove it, or look for its name in docs/reference/settings.md.';
    throw new SettingsError(name, `${name} is not a setting of this hub: ${advice}`);
  }
}

/** The environment decides defaults, so it is read first; given infrastructure means it is not a toy. */
function readBasis(env: Environment): Basis {
  const embedded =
    env[settingsTable.postgresDsn.name] === undefined &&
    env[settingsTable.kafkaBrokers.name] === undefined;
  const ignored: Basis = { env: 'local', role: 'all' };
  return {
    env:
      env[settingsTable.env.name] === undefined
        ? embedded
          ? 'local'
          : 'production'
        : readOne(env, settingsTable.env, ignored),
    role: readOne(env, settingsTable.role, ignored),
  };
}

function readOne<T>(env: Environment, setting: Setting<T>, basis: Basis): T {
  const given = env[setting.name];
  if (given === undefined) return setting.defaultFor(basis);
  const parsed = setting.parse(given.trim());
  if (parsed.ok) return parsed.value;
  // A key put where its name belongs must not end up in a log.
  const isHidden = setting.secret || setting.name === settingsTable.kekRef.name;
  const shown = isHidden ? 'its value (not shown)' : JSON.stringify(given);
  throw new SettingsError(
    setting.name,
    `${setting.name} must be ${parsed.expected}, and ${shown} is not.`,
  );
}
