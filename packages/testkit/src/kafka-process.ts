/** Java processes of test brokers: started so that they cannot outlive the test run. */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { closeSync, existsSync, openSync } from 'node:fs';
import { join } from 'node:path';

export interface JavaProcess {
  readonly child: ChildProcess;
  readonly log_file: string;
  readonly ended: Promise<void>;
  exited: boolean;
}

const running = new Set<ChildProcess>();
let hooked = false;
let canFollowParent: boolean | null = null;

/** Kills what is left when this process ends in the ordinary way; `setpriv` covers the rude ends. */
function hookExit(): void {
  if (hooked) return;
  hooked = true;
  process.on('exit', () => {
    for (const child of running) child.kill('SIGKILL');
  });
}

/** Whether `setpriv --pdeathsig` works here: the kernel then ends the broker with its parent, even after kill -9. */
function followsParent(): boolean {
  canFollowParent ??= spawnSync('setpriv', ['--pdeathsig', 'KILL', 'true']).status === 0;
  return canFollowParent;
}

export function startJava(
  installation: { readonly folder: string; readonly classPath: string },
  properties_file: string,
  log_file: string,
  options: { record_classes?: boolean } = {},
): JavaProcess {
  hookExit();
  const archive = join(installation.folder, 'classes.jsa');
  const sharing = options.record_classes
    ? [`-XX:ArchiveClassesAtExit=${archive}`]
    : existsSync(archive)
      ? [`-XX:SharedArchiveFile=${archive}`]
      : [];
  const command = [
    followsParent() ? ['setpriv', '--pdeathsig', 'KILL'] : [],
    ['java', '-Xms64m', '-Xmx256m', '-XX:+UseSerialGC', '-XX:TieredStopAtLevel=1'],
    ['-Xshare:auto', ...sharing, '-Dlog4j2.configurationFile=log4j2.properties'],
    ['-cp', installation.classPath, 'kafka.Kafka', properties_file],
  ].flat();
  const log = openSync(log_file, 'a');
  const child = spawn(command[0] as string, command.slice(1), {
    cwd: installation.folder,
    stdio: ['ignore', log, log],
  });
  closeSync(log);
  running.add(child);
  const java: JavaProcess = {
    child,
    log_file,
    exited: false,
    ended: new Promise((resolve) => {
      const finish = () => {
        running.delete(child);
        java.exited = true;
        resolve();
      };
      child.once('exit', finish);
      child.once('error', finish);
    }),
  };
  return java;
}

export async function killJava(java: JavaProcess, signal: 'SIGKILL' | 'SIGTERM'): Promise<void> {
  if (java.exited) return;
  java.child.kill(signal);
  await java.ended;
}
