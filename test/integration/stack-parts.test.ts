import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { chmod, mkdir, mkdtemp, readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import postgres from 'postgres';
import { afterEach, beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { claimDataDirectory } from '../../sandbox/stack/dataDirectory.js';
import { choosePort, freePort } from '../../sandbox/stack/ports.js';
import { type PostgresPart, startPostgres } from '../../sandbox/stack/postgres.js';
import { type ProcessOptions, runCommand, startProcess } from '../../sandbox/stack/process.js';
import { isStillRunning, startTimeOf } from '../../sandbox/stack/processIdentity.js';
import {
  findTemporalCli,
  findTemporalServer,
  findTimeSkippingServer,
} from '../../sandbox/stack/temporalBinary.js';
import { versions } from '../../sandbox/stack/versions.js';

let folder: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'corridor-parts-'));
  // PostgreSQL gives up root's identity, but must still be able to enter the folder.
  await chmod(folder, 0o755);
});
afterEach(() => rm(folder, { recursive: true, force: true }));

const nodePart = async (script: string, more: Partial<ProcessOptions> = {}) => {
  const part = await startProcess({
    name: 'part',
    command: process.execPath,
    args: ['-e', script],
    env: { ...process.env },
    ready: { line: (line) => /^ready (.*)/.exec(line)?.[1] },
    readyTimeoutMs: 10_000,
    stopTimeoutMs: 2_000,
    onLog: () => {},
    ...more,
  });
  onTestFinished(() => part.stop());
  return part;
};

describe('a process of the stack', () => {
  it('is ready when it prints its ready line, and gives the announced value', async () => {
    const part = await nodePart('console.log("ready http://x"); setInterval(() => {}, 1e6)');
    expect(part.announced).toBe('http://x');
    await part.stop();
    expect(await part.exited).toMatchObject({ code: null, signal: 'SIGTERM' });
    await part.stop();
  });

  it('is ready when its probe succeeds', async () => {
    let probes = 0;
    const ready = { probe: async () => ++probes === 3 };
    const part = await nodePart('setInterval(() => {}, 1e6)', { ready });
    expect(probes).toBe(3);
    await part.stop();
  });

  it('that exits at startup fails with its last 20 lines', async () => {
    const script = 'for (let n = 1; n <= 30; n++) console.error("line", n); process.exit(3)';
    const error: unknown = await nodePart(script).catch((cause: unknown) => cause);
    expect(error).toMatchObject({ message: expect.stringContaining('part ended (code 3)') });
    expect(error).toMatchObject({
      lastWords: Array.from({ length: 20 }, (_, index) => `line ${index + 11}`),
    });
  });

  it('that exits later reports its last lines, including an unfinished one', async () => {
    const part = await nodePart(
      'console.log("ready "); process.stdin.resume();' +
        'setTimeout(() => { process.stderr.write("no more memory"); process.exit(9) }, 20)',
    );
    expect(await part.exited).toMatchObject({ code: 9, lastWords: ['ready ', 'no more memory'] });
  });

  it('that never becomes ready is stopped and fails', async () => {
    let pid = 0;
    const script = 'console.log("thinking"); setInterval(() => {}, 1e6)';
    const onSpawn = (spawned: number) => {
      pid = spawned;
    };
    const starting = nodePart(script, { readyTimeoutMs: 500, onSpawn });
    await expect(starting).rejects.toThrow(/not ready within 500 ms.*\n {2}thinking/);
    expect(startTimeOf(pid)).toBeUndefined();
  });

  it('that ignores the stop signal is killed with its children', async () => {
    const script = `
      process.on('SIGTERM', () => {});
      const { spawn } = require('node:child_process');
      const child = spawn('sleep', ['1000']);
      console.log('ready', child.pid);
      setInterval(() => {}, 1e6);`;
    const part = await nodePart(script, { stopTimeoutMs: 100 });
    await part.stop();
    expect(await part.exited).toMatchObject({ signal: 'SIGKILL' });
    await expect.poll(() => startTimeOf(Number(part.announced))).toBeUndefined();
  });

  it('is in its own process group, out of reach of Ctrl-C', async () => {
    const part = await nodePart('console.log("ready "); setInterval(() => {}, 1e6)');
    const stat = await readFile(`/proc/${part.pid}/stat`, 'utf8');
    const processGroup = stat.slice(stat.lastIndexOf(')') + 2).split(' ')[2];
    expect(Number(processGroup)).toBe(part.pid);
    await part.stop();
  });

  it('written for Node has an IPC channel, to notice the end of its supervisor', async () => {
    const script = 'console.log("ready", process.connected); setInterval(() => {}, 1e6)';
    const part = await nodePart(script, { ipc: true });
    expect(part.announced).toBe('true');
    await part.stop();
  });

  it('whose program does not exist fails with the program’s name', async () => {
    const starting = nodePart('', { command: join(folder, 'nothing') });
    await expect(starting).rejects.toThrow(/nothing cannot be started: .*ENOENT/);
  });
});

describe('the data directory', () => {
  const lockFile = () => join(folder, 'data', 'supervisor.lock');
  const claim = () => claimDataDirectory(join(folder, 'data'));
  const sleeper = (script = '') =>
    nodePart(`${script}; console.log("ready "); setInterval(() => {}, 1e6)`);

  /** Makes the lock look as if its supervisor had been killed. */
  async function killSupervisor(): Promise<void> {
    const { pid } = await nodePart('console.log("ready ")');
    await expect.poll(() => startTimeOf(pid)).toBeUndefined();
    const lock = await readFile(lockFile(), 'utf8');
    await writeFile(lockFile(), lock.replace(`"pid": ${process.pid},`, `"pid": ${pid},`));
  }

  it('is made private, even if it existed, unless it holds other files', async () => {
    const modeOf = async () => (await stat(join(folder, 'data'))).mode & 0o777;
    (await claim()).release();
    expect(await modeOf()).toBe(0o700);

    await writeFile(join(folder, 'data', 'secrets.json'), '{}');
    await chmod(join(folder, 'data'), 0o755);
    (await claim()).release();
    expect(await modeOf()).toBe(0o700);

    await rename(join(folder, 'data', 'secrets.json'), join(folder, 'data', 'diary.txt'));
    await chmod(join(folder, 'data'), 0o755);
    const foreign = await claim();
    expect([await modeOf(), foreign.isPrivate]).toEqual([0o755, false]);
    foreign.release();
  });

  it('is refused to a second stack, with the process id of the first', async () => {
    const first = await claim();
    await expect(claim()).rejects.toThrow(`process id ${process.pid} `);
    first.release();
    (await claim()).release();
  });

  it('can be taken over from a killed supervisor, whose processes are ended', async () => {
    const [part, stubborn] = [await sleeper(), await sleeper("process.on('SIGTERM', () => {})")];
    const dead = await claim();
    dead.record(part.pid, 'part', 'SIGTERM');
    dead.record(stubborn.pid, 'deaf', 'SIGTERM');
    await killSupervisor();
    const next = await claim();
    expect(await part.exited).toMatchObject({ signal: 'SIGTERM' });
    expect(await stubborn.exited).toMatchObject({ signal: 'SIGKILL' });
    await expect(claim()).rejects.toThrow(/in use/);
    next.release();
  }, 30_000);

  it('is taken over by only one of several that start at once', async () => {
    await claim();
    await killSupervisor();
    const claims = await Promise.allSettled([claim(), claim(), claim()]);
    expect(claims.filter(({ status }) => status === 'fulfilled')).toHaveLength(1);
  });

  it('can be taken over without ending a process that reuses the pid of an old part', async () => {
    const stranger = await sleeper();
    const dead = await claim();
    dead.record(stranger.pid, 'part', 'SIGTERM');
    await killSupervisor();
    const lock = await readFile(lockFile(), 'utf8');
    const startTime = startTimeOf(stranger.pid) ?? '';
    await writeFile(lockFile(), lock.replaceAll(`"startTime": "${startTime}"`, '"startTime": "1"'));
    const next = await claim();
    expect(isStillRunning(stranger.pid, startTime)).toBe(true);
    next.release();
    await stranger.stop();
  });

  it('with a lock that cannot be read is refused, not taken over', async () => {
    await mkdir(join(folder, 'data'));
    await writeFile(lockFile(), 'not ours');
    await expect(claim()).rejects.toThrow(/not a Corridor lock/);
  });
});

describe('a port', () => {
  it('that is requested but in use is refused, naming the flag', async () => {
    const port = await choosePort(0, '--api-port');
    const server = createServer().listen(port, '127.0.0.1');
    await once(server, 'listening');
    await expect(choosePort(port, '--api-port')).rejects.toThrow(/--api-port/);
    server.close();
    await once(server, 'close');
    expect(await choosePort(port, '--api-port')).toBe(port);
  });

  it('that is free is given to only one caller, even if nothing listens on it yet', async () => {
    const ports = new Set<number>();
    // So many that some would repeat by pure chance.
    for (let count = 0; count < 500; count++) ports.add(await freePort());
    expect(ports.size).toBe(500);
  });
});

describe('PostgreSQL', () => {
  const start = async (port: number, dataDir = folder): Promise<PostgresPart> => {
    const lines: string[] = [];
    const options = { dataDir: join(dataDir, 'pg'), port, database: 'corridor' };
    const part = await startPostgres({ ...options, onLog: (line) => lines.push(line) });
    onTestFinished(() => part.stop());
    return part;
  };
  const query = async (url: string, text: string) => {
    const sql = postgres(url, { max: 1, onnotice: () => {} });
    try {
      return await sql.unsafe(text);
    } finally {
      await sql.end();
    }
  };

  it('keeps what it acknowledged when it is killed, and starts again on the same data', async () => {
    const port = await freePort();
    const first = await start(port);
    await query(first.databaseUrl, 'create table kept (n int); insert into kept values (42)');
    process.kill(first.pid, 'SIGKILL');
    expect(await first.exited).toMatchObject({ signal: 'SIGKILL' });
    const second = await start(port);
    expect(second.databaseUrl).toBe(first.databaseUrl);
    expect(await query(second.databaseUrl, 'select n from kept')).toMatchObject([{ n: 42 }]);
    await second.stop();
    expect(await second.exited).toMatchObject({ code: 0 });
  }, 60_000);

  it('ends an old server on the same data, and is not misled by a reused pid', async () => {
    const first = await start(await freePort());
    const second = await start(await freePort());
    expect(await first.exited).toMatchObject({ code: 0 });
    await second.stop();
    await writeFile(join(folder, 'pg/cluster/postmaster.pid'), `${process.pid}\n`);
    const third = await start(await freePort());
    expect(await query(third.databaseUrl, 'select 1 as one')).toMatchObject([{ one: 1 }]);
  }, 60_000);

  it('requires the password, and listens on loopback only', async () => {
    const part = await start(await freePort());
    const url = new URL(part.databaseUrl);
    url.password = 'guessed';
    await expect(query(url.href, 'select 1')).rejects.toMatchObject({ code: '28P01' });
    const [shown] = await query(part.databaseUrl, 'show listen_addresses');
    expect(shown).toEqual({ listen_addresses: '127.0.0.1' });
  }, 60_000);

  it('runs for root in a folder that only root may enter, and the log says how', async () => {
    await chmod(folder, 0o700);
    const lines: string[] = [];
    const options = { dataDir: join(folder, 'pg'), port: await freePort(), database: 'corridor' };
    const part = await startPostgres({ ...options, onLog: (line) => lines.push(line) });
    onTestFinished(() => part.stop());
    expect(await query(part.databaseUrl, 'select 1 as one')).toMatchObject([{ one: 1 }]);
    const isRoot = process.getuid?.() === 0;
    expect(lines.some((line) => line.includes('CAP_DAC_OVERRIDE'))).toBe(isRoot);
  }, 60_000);
});

describe('a Temporal binary', () => {
  const script = (output: string) => `#!/bin/sh\necho "${output}"\n`;
  const good = script(`temporal version ${versions.temporalCli} (Server 1.31.2, UI 2.50.1)`);
  const program = async (name: string, text: string) => {
    const file = join(folder, name);
    await writeFile(file, text, { mode: 0o755 });
    return file;
  };
  const options = async (
    more: { path?: string; explicitPath?: string; url?: string; archiveSha256?: string } = {},
  ) => ({
    explicitPath: more.explicitPath,
    cacheDir: join(folder, 'cache'),
    path: more.path ?? '',
    onProgress: () => {},
    downloadBaseUrl: more.url ?? `http://127.0.0.1:${await freePort()}`,
    ...(more.archiveSha256 === undefined ? {} : { archiveSha256: more.archiveSha256 }),
  });

  it('that cannot be obtained gives one error with each attempt and its reason', async () => {
    const missing: unknown = await findTemporalCli(await options()).catch(
      (cause: unknown) => cause,
    );
    const message = missing instanceof Error ? missing.message : '';
    expect(message.split('\n')).toEqual([
      'No Temporal CLI 1.8.2 could be obtained. What was tried:',
      '  - `temporal` on the search path: not there',
      expect.stringMatching(/^ {2}- the cache \(.*temporal-1.8.2\/temporal\): not there$/),
      expect.stringMatching(/^ {2}- the download from http:\/\/127.*: .*ECONNREFUSED/),
      '  - a build of tools/temporal with Go: go is not in PATH',
      expect.stringMatching(/Install .*Go 1.26.4.*TEMPORAL_CLI_PATH/),
    ]);
    const server = findTimeSkippingServer(await options());
    // Not every platform has a pinned archive.
    const reasons = /(ECONNREFUSED|no SHA-256 is pinned).*mvn is not in PATH.*JDK/s;
    await expect(server).rejects.toThrow(reasons);
  });

  it('that was configured is used or refused, never ignored', async () => {
    await program('temporal', good);
    const input = await options({ path: folder, explicitPath: join(folder, 'typo') });
    await expect(findTemporalCli(input)).rejects.toThrow(/TEMPORAL_CLI_PATH is .*typo/);
    const explicitPath = await program('mine', good);
    expect(await findTemporalCli(await options({ explicitPath }))).toBe(explicitPath);
  });

  it('on the search path is used, unless it is too old', async () => {
    const file = await program('temporal', good);
    expect(await findTemporalCli(await options({ path: folder }))).toBe(file);
    await program('temporal', script('temporal version 1.1.0 (Server 1.25.1)'));
    const old = findTemporalCli(await options({ path: folder }));
    await expect(old).rejects.toThrow(/is server 1.25.1, older than 1.28/);
  });

  /** An archive that claims to contain the good binary. */
  const packed = async () => {
    await program('binary', good);
    const archive = join(folder, 'archive.tar.gz');
    const args = ['-czf', archive, '-C', folder, 'binary'];
    await runCommand({ command: 'tar', args, env: { ...process.env }, timeoutMs: 10_000 });
    const bytes = await readFile(archive);
    return { archive, archiveSha256: createHash('sha256').update(bytes).digest('hex') };
  };

  it('is downloaded once and then found in the cache, even by concurrent callers', async () => {
    const { archive, archiveSha256 } = await packed();
    const requests: string[] = [];
    const server = await serve((url, origin) => {
      requests.push(url);
      return url.startsWith('/cli/')
        ? JSON.stringify({ archiveUrl: `${origin}/archive`, fileToExtract: 'binary' })
        : readFile(archive);
    });
    const finding = { path: '/usr/bin:/bin', url: server, archiveSha256 };
    // The race is close: about every third round hits it.
    for (let round = 0; round < 20; round += 1) {
      const cacheDir = join(folder, `cache-${round}`);
      const found = join(cacheDir, 'temporal-1.8.2/temporal');
      const together = { ...(await options(finding)), cacheDir };
      const finders = Array.from({ length: 3 }, () => findTemporalCli(together));
      expect(await Promise.all(finders)).toEqual([found, found, found]);
    }
    const expected = join(folder, 'cache/temporal-1.8.2/temporal');
    expect(await findTemporalCli(await options(finding))).toBe(expected);
    expect(requests[0]).toMatch(/^\/cli\/v1.8.2\?platform=\w+&arch=\w+&format=tar.gz$/);
    const downloads = requests.length;
    expect(await findTemporalCli(await options(finding))).toBe(expected);
    expect(requests).toHaveLength(downloads);
  });

  it('is not used from an archive that does not match its pin, or has none', async () => {
    const { archive, archiveSha256 } = await packed();
    const url = await serve((path, origin) =>
      path.startsWith('/cli/')
        ? JSON.stringify({ archiveUrl: `${origin}/archive`, fileToExtract: 'binary' })
        : readFile(archive),
    );
    const finding = async () => findTemporalCli(await options({ path: '/usr/bin:/bin', url }));
    await expect(finding()).rejects.toThrow(`the archive's SHA-256 is ${archiveSha256}, not `);
    const { platform } = process;
    Object.defineProperty(process, 'platform', { value: 'plan9' });
    onTestFinished(() => void Object.defineProperty(process, 'platform', { value: platform }));
    await expect(finding()).rejects.toThrow(/no SHA-256 is pinned for it on plan9-/);
  });

  it('of the server is built once, with its schema tool, and kept', async () => {
    const binary = await program('binary', script(`temporal version ${versions.temporalServer}`));
    const to = `to=$(printf %s "$*" | sed 's/.* -o \\([^ ]*\\) .*/\\1/')`;
    const copies = `cp ${binary} "$to/server" && cp ${binary} "$to/sql"`;
    await program('go', `#!/bin/sh\necho "$*" >>"${folder}/built"\n${to}\n${copies}\n`);
    const finding = await options({ path: `${folder}:/usr/bin:/bin` });
    const file = join(
      folder,
      'cache',
      `temporal-server-${versions.temporalServer}/temporal-server`,
    );
    expect(await findTemporalServer(finding)).toBe(file);
    expect(await findTemporalServer(finding)).toBe(file);
    expect(await readFile(join(folder, 'built'), 'utf8')).toMatch(
      /^build .* go\.temporal\.io\/server\/cmd\/server go\.temporal\.io\/server\/cmd\/tools\/sql\n$/,
    );
    await rm(file.replace(/[^/]*$/, 'temporal-sql-tool'));
    const explicitPath = file;
    const alone = findTemporalServer(await options({ explicitPath }));
    await expect(alone).rejects.toThrow(/TEMPORAL_SERVER_PATH is .*temporal-sql-tool is missing/);
    await writeFile(file, script('temporal version 1.30.1'));
    const old = findTemporalServer(await options({ explicitPath }));
    await expect(old).rejects.toThrow(/is server 1.30.1, not 1.31.2/);
    const missing = findTemporalServer({ ...(await options()), cacheDir: join(folder, 'none') });
    await expect(missing).rejects.toThrow(
      /No Temporal server 1.31.2 .*search path: not there.*go is not in.*TEMPORAL_SERVER_PATH/s,
    );
  });

  it('is not built from jars that are not pinned', async () => {
    const to = `to=$(printf %s "$*" | sed 's/.*-DoutputDirectory=//')`;
    await program('mvn', `#!/bin/sh\n${to}\nmkdir -p "$to" && echo evil >"$to/guava-33.jar"\n`);
    await program('java', '#!/bin/sh\necho --enable-time-skipping\n');
    const server = findTimeSkippingServer(await options({ path: `${folder}:/usr/bin:/bin` }));
    await expect(server).rejects.toThrow(/guava-33.jar with SHA-256 [0-9a-f]{64} is not pinned/);
  });

  it('is not extracted from an archive that would write outside its folder', async () => {
    const url = await serve((_, origin) =>
      JSON.stringify({ archiveUrl: `${origin}/archive`, fileToExtract: '../../evil' }),
    );
    const finding = findTemporalCli(await options({ path: '/usr/bin:/bin', url }));
    await expect(finding).rejects.toThrow(/fileToExtract/);
  });

  async function serve(answer: (url: string, origin: string) => unknown): Promise<string> {
    const server = createServer();
    server.on('request', (request: IncomingMessage, response: ServerResponse) => {
      const body = Promise.resolve(answer(request.url ?? '', `http://${request.headers.host}`));
      void body.then((bytes) => response.end(bytes));
    });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    onTestFinished(() => void server.close());
    const address = server.address();
    if (address === null || typeof address === 'string') throw new Error('not a TCP address');
    return `http://127.0.0.1:${address.port}`;
  }
});
