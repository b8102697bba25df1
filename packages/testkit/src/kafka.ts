/**
 * A real Kafka for tests. One broker is shared by a whole run (`kafkaBrokers()`); tests that kill
 * brokers, need three of them or want SASL and TLS start their own (`startKafka`).
 *
 * Where Java or Maven are missing, `kafkaAvailable()` is false: guard each suite by
 * `describe.skipIf(!kafkaAvailable())`; the reason is printed once per run.
 */
import { cpSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { makeCertificates } from './kafka-certificates.ts';
import {
  formatStorage,
  installKafka,
  type KafkaInstallation,
  missingForKafka,
} from './kafka-install.ts';
import { type JavaProcess, killJava, startJava } from './kafka-process.ts';
import {
  type BrokerSecurity,
  type BrokerSettings,
  brokerProperties,
  writeProperties,
} from './kafka-properties.ts';
import { freePort, waitUntilReady } from './kafka-ready.ts';

export interface KafkaOptions {
  nodes?: 1 | 3;
  /** Adds listeners with SASL (PLAIN, SCRAM-SHA-256, SCRAM-SHA-512), TLS, and both. */
  security?: boolean;
}

export interface KafkaSecurity {
  readonly sasl: string;
  readonly tls: string;
  readonly sasl_tls: string;
  readonly ca: string;
  readonly username: string;
  readonly password: string;
}

export interface KafkaNode {
  readonly node_id: number;
  /** `host:port` of the plaintext listener. */
  readonly address: string;
  /** kill -9. */
  kill(): Promise<void>;
  /** SIGTERM: leadership moves first, then it ends. */
  stop(): Promise<void>;
  /** Freezes the process: connections stay open and nothing answers. */
  freeze(): void;
  thaw(): void;
  /** Starts it again on the same ports and data; resolves once it answers. */
  restart(): Promise<void>;
}

export interface KafkaCluster {
  readonly brokers: string[];
  readonly nodes: readonly KafkaNode[];
  readonly security: KafkaSecurity | null;
  /** Kills the first (or only) node. */
  kill(): Promise<void>;
  restart(): Promise<void>;
  /** Ends every node and deletes the data. */
  stop(): Promise<void>;
}

/** Whether this machine can start brokers of its own (Java and Maven are there). */
export function kafkaStartable(): boolean {
  return process.env['TEST_KAFKA_MISSING'] === undefined && missing() === null;
}

/** Whether tests have a broker: `TEST_KAFKA_BROKERS`, or one that can be started. */
export function kafkaAvailable(): boolean {
  return process.env['TEST_KAFKA_BROKERS'] !== undefined || kafkaStartable();
}

let missingCache: string | null | undefined;
function missing(): string | null {
  if (missingCache === undefined) missingCache = missingForKafka();
  return missingCache;
}

/** The run's one shared broker, started by the `kafka` test project. */
export function kafkaBrokers(): string[] {
  const brokers = process.env['TEST_KAFKA_BROKERS'];
  if (brokers === undefined || brokers === '') {
    throw new Error(
      'no shared Kafka broker: run this test in the kafka project, or set TEST_KAFKA_BROKERS',
    );
  }
  return brokers.split(',').map((broker) => broker.trim());
}

const folderPrefix = 'streaming-hub-kafka-';

/** Removes the data of runs that were killed: their folders carry the id of a process that is gone. */
function sweep(): void {
  for (const name of readdirSync(tmpdir())) {
    const pid = Number(new RegExp(`^${folderPrefix}(\\d+)-`).exec(name)?.[1] ?? process.pid);
    if (pid === process.pid || isAlive(pid)) continue;
    try {
      rmSync(join(tmpdir(), name), { recursive: true, force: true });
    } catch {
      // Another user's: theirs to remove.
    }
  }
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return error instanceof Error && 'code' in error && error.code === 'EPERM';
  }
}

const user = { username: 'alice', password: 'open-sesame' };

/** Starts a broker (2 to 3 s) or a cluster of three (5 s). Throws where Java or Maven are missing. */
export async function startKafka(options: KafkaOptions = {}): Promise<KafkaCluster> {
  const lack = missing();
  if (lack !== null) throw new Error(lack);
  const installation = await installKafka();
  sweep();
  const folder = mkdtempSync(join(tmpdir(), `${folderPrefix}${process.pid}-`));
  const count = options.nodes ?? 1;
  const nodes = await Promise.all(
    Array.from({ length: count }, async (_, index) => ({
      node_id: index + 1,
      port: await freePort(),
      controller_port: await freePort(),
    })),
  );
  const voters = nodes.map((node) => `${node.node_id}@127.0.0.1:${node.controller_port}`).join();
  const certificates = options.security ? await makeCertificates(folder) : null;
  const security: BrokerSecurity | null = certificates && {
    ...user,
    ...certificates,
    sasl_port: await freePort(),
    ssl_port: await freePort(),
    saslssl_port: await freePort(),
  };
  const started = nodes.map(
    (node) =>
      new Node(installation, folder, {
        ...node,
        voters,
        nodes: count,
        security: node.node_id === 1 ? security : null,
        data_dir: join(folder, `data-${node.node_id}`),
      }),
  );
  const remove = () => rmSync(folder, { recursive: true, force: true });
  process.once('exit', remove);
  try {
    for (const node of started) await node.format();
    await Promise.all(started.map((node) => node.start(count)));
  } catch (error) {
    await Promise.all(started.map((node) => node.kill()));
    remove();
    throw error;
  }
  const [first] = started as [Node];
  return {
    brokers: started.map((node) => node.address),
    nodes: started,
    security: certificates &&
      security && {
        ...user,
        ca: certificates.ca,
        sasl: `127.0.0.1:${security.sasl_port}`,
        tls: `127.0.0.1:${security.ssl_port}`,
        sasl_tls: `127.0.0.1:${security.saslssl_port}`,
      },
    kill: () => first.kill(),
    restart: () => first.restart(),
    stop: async () => {
      // Data is thrown away, so nothing needs a clean stop (40 ms instead of seconds).
      await Promise.all(started.map((node) => node.kill()));
      process.removeListener('exit', remove);
      remove();
    },
  };
}

class Node implements KafkaNode {
  readonly node_id: number;
  readonly address: string;
  readonly #installation: KafkaInstallation;
  readonly #settings: BrokerSettings;
  readonly #properties_file: string;
  readonly #log_file: string;
  #java: JavaProcess | null = null;

  constructor(installation: KafkaInstallation, folder: string, settings: BrokerSettings) {
    this.node_id = settings.node_id;
    this.address = `127.0.0.1:${settings.port}`;
    this.#installation = installation;
    this.#settings = settings;
    this.#properties_file = join(folder, `node-${settings.node_id}.properties`);
    this.#log_file = join(folder, `node-${settings.node_id}.txt`);
    writeProperties(this.#properties_file, brokerProperties(settings));
  }

  async format(): Promise<void> {
    const { nodes, security, data_dir } = this.#settings;
    if (nodes === 1 && security === null) {
      cpSync(this.#installation.template, data_dir, { recursive: true });
    } else {
      await formatStorage(this.#installation, this.#properties_file, security);
    }
  }

  async start(nodes: number): Promise<void> {
    this.#java = startJava(this.#installation, this.#properties_file, this.#log_file);
    await waitUntilReady(this.#settings.port, nodes, this.#java);
  }

  async kill(): Promise<void> {
    if (this.#java !== null) await killJava(this.#java, 'SIGKILL');
  }

  async stop(): Promise<void> {
    if (this.#java !== null) await killJava(this.#java, 'SIGTERM');
  }

  freeze(): void {
    this.#java?.child.kill('SIGSTOP');
  }

  thaw(): void {
    this.#java?.child.kill('SIGCONT');
  }

  /** One broker is enough as an answer: others may be down at this moment. */
  async restart(): Promise<void> {
    await this.kill();
    await this.start(1);
  }
}
