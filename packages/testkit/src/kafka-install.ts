/**
 * The Kafka broker for tests: jars fetched once by Maven, a class-data archive that halves the
 * start time, and a formatted data folder to copy. All of it lives in one cache folder named after
 * the pom and the start options, built in a temporary folder beside it and renamed, so that two
 * runs at once, or a run that dies half way, never leave a broken cache.
 */
import { execFile, spawnSync } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import {
  accessSync,
  chmodSync,
  constants,
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { promisify } from 'node:util';
import { killJava, startJava } from './kafka-process.ts';
import { brokerProperties, writeProperties } from './kafka-properties.ts';
import { freePort, waitUntilReady } from './kafka-ready.ts';

const run = promisify(execFile);

export const kafkaFolder = resolve(import.meta.dirname, '../kafka');
const repositoryFolder = resolve(import.meta.dirname, '../../..');

/** Any 16 bytes; every test cluster may share it because none of them ever meet. */
export const clusterId = '4L6g3nShT-eMCtK--X86sw';

const FETCH_TIMEOUT_ms = 300_000;

export interface KafkaInstallation {
  /** Working folder of every broker: the class path is relative to it, as the class archive requires. */
  readonly folder: string;
  readonly classPath: string;
  /** A formatted single-node data folder, to be copied. */
  readonly template: string;
}

/** What this machine lacks for running a broker, or null. One sentence that says how to get it. */
export function missingForKafka(): string | null {
  const missing = [
    ['java', '-version'],
    ['mvn', '-version'],
  ].filter(([command, argument]) => spawnSync(command as string, [argument as string]).error);
  if (missing.length === 0) return null;
  const names = missing.map(([command]) => command).join(' and ');
  return `${names} not found: install a Java runtime 17 or newer and Maven (Debian: apt-get install openjdk-17-jre-headless maven), or set TEST_KAFKA_BROKERS to a running broker`;
}

/** The cache folder's content, built on first use (10 to 40 s, needs a Maven repository). */
export async function installKafka(): Promise<KafkaInstallation> {
  const parent = cacheParent();
  const folder = join(parent, `kafka-${fingerprint()}`);
  if (!existsSync(folder)) await build(parent, folder);
  return describe(folder);
}

function describe(folder: string): KafkaInstallation {
  const jars = readdirSync(join(folder, 'jars')).sort();
  return {
    folder,
    classPath: jars.map((jar) => `jars/${jar}`).join(':'),
    template: join(folder, 'template'),
  };
}

function fingerprint(): string {
  const hash = createHash('sha256');
  for (const file of readdirSync(kafkaFolder).sort()) {
    hash.update(file).update(readFileSync(join(kafkaFolder, file)));
  }
  // The class archive belongs to one Java build.
  hash.update(spawnSync('java', ['-version']).stderr ?? '');
  return hash.digest('hex').slice(0, 12);
}

function cacheParent(): string {
  const wanted = process.env['TEST_KAFKA_CACHE'] ?? join(repositoryFolder, '.cache');
  try {
    mkdirSync(wanted, { recursive: true });
    accessSync(wanted, constants.W_OK);
    return wanted;
  } catch {
    // A folder made by another user may still hold a finished cache.
    if (existsSync(join(wanted, `kafka-${fingerprint()}`))) return wanted;
    const fallback = join(tmpdir(), `streaming-hub-cache-${process.getuid?.() ?? 'user'}`);
    mkdirSync(fallback, { recursive: true });
    return fallback;
  }
}

async function build(parent: string, folder: string): Promise<void> {
  const work = join(parent, `building-${process.pid}-${randomBytes(4).toString('hex')}`);
  mkdirSync(work, { recursive: true });
  try {
    cpSync(kafkaFolder, work, { recursive: true });
    await fetchJars(work);
    await prepare(describe(work));
    openToAll(work);
    try {
      renameSync(work, folder);
    } catch (error) {
      if (!existsSync(folder)) throw error; // else another run was faster: use its folder
    }
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
}

/** By the user's Maven repository, else by one of its own (no home folder, or a damaged repository). */
async function fetchJars(work: string): Promise<void> {
  const jars = join(work, 'jars');
  const command = ['-B', '-q', '-f', join(work, 'pom.xml'), 'dependency:copy-dependencies'];
  const options = ['-DincludeScope=runtime', `-DoutputDirectory=${jars}`];
  const own = join(work, 'repository');
  try {
    await run('mvn', [...command, ...options], { timeout: FETCH_TIMEOUT_ms });
  } catch {
    rmSync(jars, { recursive: true, force: true });
    try {
      const timeout = FETCH_TIMEOUT_ms;
      await run('mvn', [...command, ...options, `-Dmaven.repo.local=${own}`], { timeout });
    } catch (cause) {
      const said = cause instanceof Error && 'stdout' in cause ? String(cause.stdout) : '';
      throw new Error(`Maven could not fetch the Kafka broker: ${said.trim()}`, { cause });
    }
    rmSync(own, { recursive: true, force: true });
  }
}

/** A cache that root has built serves ordinary users too; Kafka makes some folders private. */
function openToAll(path: string): void {
  const found = statSync(path);
  const folder = found.isDirectory();
  chmodSync(path, found.mode | (folder ? 0o555 : 0o444));
  if (folder) for (const name of readdirSync(path)) openToAll(join(path, name));
}

/** Formats the template and records the class archive by one start and one clean stop. */
async function prepare(installation: KafkaInstallation): Promise<void> {
  const port = await freePort();
  const controller_port = await freePort();
  const properties = brokerProperties({
    node_id: 1,
    port,
    controller_port,
    voters: `1@127.0.0.1:${controller_port}`,
    data_dir: join(installation.folder, 'first-start'),
    nodes: 1,
    security: null,
  });
  const file = join(installation.folder, 'first-start.properties');
  writeProperties(file, properties);
  await formatStorage(installation, file, null);
  cpSync(join(installation.folder, 'first-start'), installation.template, { recursive: true });
  const java = startJava(installation, file, join(installation.folder, 'first-start.txt'), {
    record_classes: true,
  });
  await waitUntilReady(port, 1, java);
  await killJava(java, 'SIGTERM');
  rmSync(join(installation.folder, 'first-start'), { recursive: true, force: true });
}

/** Writes cluster id, node id and (optionally) SCRAM users into the data folder named by the properties. */
export async function formatStorage(
  installation: KafkaInstallation,
  properties_file: string,
  user: { username: string; password: string } | null,
): Promise<void> {
  const users = ['SCRAM-SHA-256', 'SCRAM-SHA-512'].flatMap((mechanism) =>
    user === null
      ? []
      : ['--add-scram', `${mechanism}=[name=${user.username},password=${user.password}]`],
  );
  await run(
    'java',
    [
      ['-Xmx128m', '-XX:+UseSerialGC', '-XX:TieredStopAtLevel=1'],
      ['-Dlog4j2.configurationFile=log4j2.properties', '-cp', installation.classPath],
      ['kafka.tools.StorageTool', 'format', '-t', clusterId, '-c', properties_file, ...users],
    ].flat(),
    { cwd: installation.folder, timeout: 60_000 },
  );
}
