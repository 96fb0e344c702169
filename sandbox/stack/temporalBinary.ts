import { createHash, type Hash } from 'node:crypto';
import { accessSync, constants, createWriteStream, statSync } from 'node:fs';
import { chmod, mkdir, mkdtemp, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { basename, delimiter, dirname, join, resolve } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { fileURLToPath } from 'node:url';
import { z } from 'zod';
import { CannotStart } from './cannotStart.js';
import { type Exit, runCommand } from './process.js';
import { archiveSha256, versions } from './versions.js';

/** Timeout of a connection, after which the host counts as unreachable and the next source is tried. */
const connectTimeoutMs = 5_000;

/** Timeout of a download of about 60 MB: enough even at 2 Mbit/s. */
const downloadTimeoutMs = 5 * 60_000;

/** Maximum archive size: five times the largest so far. */
const archiveBytes = 300 * 1024 * 1024;

/** Timeout of a check: `--version` of a cold 140 MB binary, or starting a JVM on a busy machine. */
const checkTimeoutMs = 30_000;

/** Timeout of a build: on 2 idle cores without a cache Go takes 4 min, Maven 10 s. */
const buildTimeoutMs = 20 * 60_000;

const progressIntervalMs = 10_000;

/** The first server version whose Update-with-Start behaves as the service needs. */
const oldestServer = { major: 1, minor: 28 };

type FinderOptions = {
  /** A binary given by the user. If it does not work, no other source is tried. */
  readonly explicitPath?: string | undefined;
  /** The folder for downloads and builds, with one subfolder per version. */
  readonly cacheDir: string;
  /** The search path for `temporal`, `temporal-server`, `go`, `mvn`, `java` and `tar`, as in PATH. */
  readonly path: string;
  readonly onProgress: (line: string) => void;
  readonly downloadBaseUrl?: string;
  /** The expected SHA-256 of the downloaded archive, instead of the pinned one. */
  readonly archiveSha256?: string;
};

/** The file, or why this way of finding it failed. */
type Outcome = { readonly found: string } | { readonly failed: string };
type Way = { readonly name: string; readonly find: () => Promise<Outcome> };
type Check = (file: string) => Promise<Outcome>;

/** A program that can be cached: its names, its version and how to check and install it. */
type Product = {
  readonly title: string;
  readonly file: string;
  readonly version: string;
  readonly variable: string;
  readonly install: string;
  readonly check: Check;
};

/**
 * Returns the path of a Temporal CLI: the one given, `temporal` on the search path,
 * the cache, Temporal's download, or a build of `tools/temporal` with Go.
 *
 * @throws Error naming every way that was tried, why it failed and what to install
 */
export async function findTemporalCli(options: FinderOptions): Promise<string> {
  const product: Product = {
    title: 'Temporal CLI',
    file: 'temporal',
    version: versions.temporalCli,
    variable: 'TEMPORAL_CLI_PATH',
    install: `Install the Temporal CLI (https://docs.temporal.io/cli/setup-cli) or ${goToInstall}`,
    check: (file) => checkCli(file, options.path),
  };
  return find(product, options, [
    searchPath(product, options),
    cache(product, options),
    downloaded(product, options, 'cli'),
    build(product, options, { temporal: 'github.com/temporalio/cli/cmd/temporal' }),
  ]);
}

/**
 * Returns the path of Temporal's production server, which has `temporal-sql-tool` of the same version in
 * the same folder: the one given, `temporal-server` on the search path, the cache, or a build of
 * `tools/temporal` with Go. Temporal's download site does not offer it.
 *
 * @throws Error naming every way that was tried, why it failed and what to install
 */
export async function findTemporalServer(options: FinderOptions): Promise<string> {
  const product: Product = {
    title: 'Temporal server',
    file: 'temporal-server',
    version: versions.temporalServer,
    variable: 'TEMPORAL_SERVER_PATH',
    install: `Install ${goToInstall}`,
    check: (file) => checkServer(file, options.path),
  };
  return find(product, options, [
    searchPath(product, options),
    cache(product, options),
    // After a build of the CLI nearly everything is in Go's cache: 8 s instead of 4 minutes.
    build(product, options, {
      'temporal-server': 'go.temporal.io/server/cmd/server',
      [sqlTool]: 'go.temporal.io/server/cmd/tools/sql',
    }),
  ]);
}

const goToInstall = 'Go 1.26.4 or newer (https://go.dev/dl)';

/** The tool that sets up the server's databases. */
const sqlTool = 'temporal-sql-tool';

/**
 * Returns the path of the time-skipping test server, an executable whose
 * argument is a port: the one given, the cache, Temporal's download, or the jars
 * of `tools/test-server` from Maven Central with a script that runs them.
 *
 * @throws Error naming every way that was tried, why it failed and what to install
 */
export async function findTimeSkippingServer(options: FinderOptions): Promise<string> {
  const product: Product = {
    title: 'Temporal test server',
    file: 'temporal-test-server',
    version: versions.temporalTestServer,
    variable: 'TEMPORAL_TEST_SERVER_PATH',
    install: 'Install a JDK (17 or newer) and Maven',
    check: (file) => checkTestServer(file, options.path),
  };
  return find(product, options, [
    cache(product, options),
    downloaded(product, options, 'temporal-test-server'),
    {
      name: 'the jars of tools/test-server with Maven',
      find: () => addToCache(product, options, (folder) => copyJars(folder, options)),
    },
  ]);
}

async function find(
  product: Product,
  { explicitPath }: FinderOptions,
  ways: readonly Way[],
): Promise<string> {
  if (explicitPath !== undefined) {
    const outcome = isExecutable(explicitPath)
      ? await product.check(resolve(explicitPath))
      : { failed: 'there is no executable file' };
    if ('found' in outcome) return outcome.found;
    throw new CannotStart(`${product.variable} is ${explicitPath}: ${outcome.failed}.`);
  }
  const failures: string[] = [];
  for (const way of ways) {
    const outcome = await way.find();
    if ('found' in outcome) return outcome.found;
    failures.push(`  - ${way.name}: ${outcome.failed}`);
  }
  throw new CannotStart(
    [
      `No ${product.title} ${product.version} could be obtained. What was tried:`,
      ...failures,
      `${product.install}, or set ${product.variable} to an executable.`,
    ].join('\n'),
  );
}

function searchPath(product: Product, { path }: FinderOptions): Way {
  return {
    name: `\`${product.file}\` on the search path`,
    find: async () => {
      const file = lookUp(product.file, path);
      return file === undefined ? { failed: 'not there' } : product.check(file);
    },
  };
}

function cache(product: Product, options: FinderOptions): Way {
  const file = join(cacheFolder(product, options), product.file);
  return {
    name: `the cache (${file})`,
    find: async () => (isExecutable(file) ? product.check(file) : { failed: 'not there' }),
  };
}

/** The programs on Temporal's download site, by their names there. */
type Artifact = keyof typeof archiveSha256;

function downloaded(product: Product, options: FinderOptions, artifact: Artifact): Way {
  const baseUrl = options.downloadBaseUrl ?? 'https://temporal.download';
  return {
    name: `the download from ${baseUrl}`,
    find: () =>
      addToCache(product, options, (to) => download(product, options, { baseUrl, artifact }, to)),
  };
}

/** Go packages by the name of the program built from each, including the product itself. */
type Programs = Readonly<Record<string, string>>;

function build(product: Product, options: FinderOptions, programs: Programs): Way {
  return {
    name: 'a build of tools/temporal with Go',
    find: () => addToCache(product, options, (to) => buildWithGo(product, options, programs, to)),
  };
}

function cacheFolder({ file, version }: Product, { cacheDir }: FinderOptions): string {
  return resolve(cacheDir, `${file}-${version}`);
}

/**
 * Fills a temporary folder, checks its content and only then renames it, so that
 * no incomplete folder is visible and concurrent runs do not interfere.
 */
async function addToCache(
  product: Product,
  options: FinderOptions,
  fill: (folder: string) => Promise<void>,
): Promise<Outcome> {
  const folder = cacheFolder(product, options);
  let unfinished: string | undefined;
  try {
    await mkdir(options.cacheDir, { recursive: true });
    unfinished = await mkdtemp(`${folder}.`);
    await fill(unfinished);
    const outcome = await product.check(join(unfinished, product.file));
    if ('failed' in outcome) return outcome;
    return await putInPlace(product, unfinished, folder);
  } catch (error) {
    return { failed: describe(error) };
  } finally {
    if (unfinished !== undefined) await rm(unfinished, { recursive: true, force: true });
  }
}

/** Renames a checked folder, unless another process was faster: its program may already be running. */
async function putInPlace(product: Product, checked: string, folder: string): Promise<Outcome> {
  const file = join(folder, product.file);
  try {
    // Fails if the target exists and is not empty (rename(2)).
    await rename(checked, folder);
    return { found: file };
  } catch (error) {
    const existing = isExecutable(file) ? await product.check(file) : undefined;
    if (existing !== undefined && 'found' in existing) return existing;
    if (!isTaken(error)) throw error;
  }
  // The existing folder is broken.
  await rm(folder, { recursive: true, force: true });
  await rename(checked, folder);
  return { found: file };
}

function isTaken(error: unknown): boolean {
  const code = error instanceof Error && 'code' in error ? String(error.code) : '';
  return ['ENOTEMPTY', 'EEXIST'].includes(code);
}

/** The response of Temporal's download site: the archive to fetch and the file to extract. */
const downloadSchema = z.object({
  archiveUrl: z.url({ protocol: /^https?$/ }),
  // A relative path that stays inside the folder.
  fileToExtract: z.string().regex(/^(?!.*\.\.)\w[\w./-]*$/),
});

/** Downloads as the Temporal SDK does for its test environments, but accepts only pinned archives. */
async function download(
  product: Product,
  options: FinderOptions,
  { baseUrl, artifact }: { readonly baseUrl: string; readonly artifact: Artifact },
  folder: string,
): Promise<void> {
  const platform = `${process.platform}-${process.arch}`;
  const pinned = options.archiveSha256 ?? archiveSha256[artifact][platform];
  if (pinned === undefined) throw new Error(`no SHA-256 is pinned for it on ${platform}`);
  const url = new URL(`${baseUrl}/${artifact}/v${product.version}`);
  url.searchParams.set('platform', process.platform);
  url.searchParams.set('arch', process.arch === 'x64' ? 'amd64' : process.arch);
  url.searchParams.set('format', 'tar.gz');
  const info = downloadSchema.parse(await (await fetchWithin(url)).json());
  const archiveUrl = new URL(info.archiveUrl);
  if (archiveUrl.protocol !== 'https:' && archiveUrl.origin !== url.origin) {
    throw new Error(`the archive is offered without encryption (${archiveUrl.origin})`);
  }
  options.onProgress(`downloading ${product.title} ${product.version} from ${archiveUrl.origin}`);
  const { body } = await fetchWithin(archiveUrl);
  if (body === null) throw new Error('the archive is empty');
  const tar = requireTool('tar', options.path);
  const archive = join(folder, 'archive.tar.gz');
  const hash = createHash('sha256');
  await pipeline(body, pass(archiveBytes, hash), createWriteStream(archive));
  const sha256 = hash.digest('hex');
  if (sha256 !== pinned) throw new Error(`the archive's SHA-256 is ${sha256}, not ${pinned}`);
  await runOrThrow(options, tar, ['-xzf', archive, '-C', folder, info.fileToExtract], folder);
  await rm(archive);
  await rename(join(folder, info.fileToExtract), join(folder, product.file));
  await chmod(join(folder, product.file), 0o755);
}

async function fetchWithin(url: URL): Promise<Response> {
  const connecting = new AbortController();
  const late = () => connecting.abort(new Error(`no answer within ${connectTimeoutMs} ms`));
  const timer = setTimeout(late, connectTimeoutMs);
  const signal = AbortSignal.any([connecting.signal, AbortSignal.timeout(downloadTimeoutMs)]);
  try {
    const response = await fetch(url, { signal });
    if (!response.ok) throw new Error(`${url.origin} answered ${response.status}`);
    return response;
  } finally {
    clearTimeout(timer);
  }
}

/** Passes bytes through, updates the hash and fails if there are more than the limit. */
function pass(limit: number, hash: Hash) {
  return async function* (chunks: AsyncIterable<Uint8Array>) {
    let total = 0;
    for await (const chunk of chunks) {
      total += chunk.length;
      if (total > limit) throw new Error(`the archive is larger than ${limit} bytes`);
      hash.update(chunk);
      yield chunk;
    }
  };
}

async function buildWithGo(
  { title, version }: Product,
  options: FinderOptions,
  programs: Programs,
  folder: string,
): Promise<void> {
  const go = requireTool('go', options.path);
  const packages = Object.values(programs);
  await withProgress(options, `building ${title} ${version} with Go`, () =>
    runOrThrow(
      options,
      go,
      // If the output is a folder, Go names each program after its package's folder.
      ['build', '-trimpath', '-ldflags=-s -w', '-o', `${folder}/`, ...packages],
      toolFolder('temporal'),
    ),
  );
  for (const [name, path] of Object.entries(programs))
    await rename(join(folder, basename(path)), join(folder, name));
}

async function copyJars(folder: string, options: FinderOptions): Promise<void> {
  const mvn = requireTool('mvn', options.path);
  requireTool('java', options.path);
  await withProgress(options, 'fetching the Temporal test server with Maven', () =>
    runOrThrow(
      options,
      mvn,
      [
        ...['--quiet', '--batch-mode', 'dependency:copy-dependencies'],
        ...['-DincludeScope=runtime', `-DoutputDirectory=${join(folder, 'lib')}`],
      ],
      toolFolder('test-server'),
    ),
  );
  await requirePinnedJars(join(folder, 'lib'));
  // exec, so that a signal to the script reaches the server. The SDK allows a server
  // 5 s to start, so the JVM skips optimisations that pay off only later.
  const script = `#!/bin/sh
here=$(cd "$(dirname "$0")" && pwd)
exec java -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto -Xmx512m \\
  -cp "$here/lib/*" io.temporal.testserver.TestServer "$@"
`;
  await writeFile(join(folder, 'temporal-test-server'), script, { mode: 0o755 });
}

/** Checks every file against the pinned hashes, because everything in the folder will be run. */
async function requirePinnedJars(folder: string): Promise<void> {
  const list = await readFile(join(toolFolder('test-server'), 'jars.sha256'), 'utf8');
  const pinned = new Set(list.trimEnd().split('\n'));
  for (const name of await readdir(folder)) {
    const bytes = await readFile(join(folder, name));
    const sha256 = createHash('sha256').update(bytes).digest('hex');
    if (!pinned.has(`${sha256}  ${name}`)) {
      throw new Error(`${name} with SHA-256 ${sha256} is not pinned in tools/test-server`);
    }
  }
}

/** Reports the task at once, and the elapsed time every 10 s. */
async function withProgress(
  { onProgress }: FinderOptions,
  what: string,
  run: () => Promise<void>,
): Promise<void> {
  const startedMs = performance.now();
  onProgress(`${what}; once, and up to 4 minutes if nothing is cached`);
  const timer = setInterval(() => {
    onProgress(`${what}: ${Math.round((performance.now() - startedMs) / 1_000)} s so far`);
  }, progressIntervalMs);
  try {
    await run();
  } finally {
    clearInterval(timer);
  }
}

async function runOrThrow(
  { path }: FinderOptions,
  command: string,
  args: readonly string[],
  cwd: string,
): Promise<void> {
  // Without cgo the build needs no C compiler.
  const env = { ...process.env, PATH: path, CGO_ENABLED: '0' };
  const exit = await runCommand({ command, args, cwd, env, timeoutMs: buildTimeoutMs });
  if (exit.code !== 0) throw new Error(ending(command, exit));
}

async function checkCli(file: string, path: string): Promise<Outcome> {
  const said = await output(file, ['--version'], path);
  const [, version, major, minor] = /Server ((\d+)\.(\d+)\.[^,)\s]+)/.exec(said) ?? [];
  if (version === undefined) return { failed: `${file} --version does not run: ${said}` };
  const age = Number(major) - oldestServer.major || Number(minor) - oldestServer.minor;
  if (age >= 0) return { found: file };
  const needed = `${oldestServer.major}.${oldestServer.minor}`;
  return { failed: `${file} is server ${version}, older than ${needed}` };
}

/** Requires exactly the pinned version, because the databases have the schema of that version. */
async function checkServer(file: string, path: string): Promise<Outcome> {
  const said = await output(file, ['--version'], path);
  const version = /version (\d[\w.-]*)/.exec(said)?.[1];
  if (version === undefined) return { failed: `${file} --version does not run: ${said}` };
  const needed = versions.temporalServer;
  if (version !== needed) return { failed: `${file} is server ${version}, not ${needed}` };
  const tool = join(dirname(file), sqlTool);
  return isExecutable(tool) ? { found: file } : { failed: `${tool} is missing` };
}

/** Checks the test server by its usage text, which too many arguments print: it has no `--version`. */
async function checkTestServer(file: string, path: string): Promise<Outcome> {
  const said = await output(file, ['0', 'usage', 'please'], path);
  if (said.includes('--enable-time-skipping')) return { found: file };
  return { failed: `${file} does not run: ${said}` };
}

/** Returns a program's output, or the reason why it cannot be run. */
async function output(file: string, args: readonly string[], path: string): Promise<string> {
  try {
    const env = { ...process.env, PATH: path };
    const exit = await runCommand({ command: file, args, env, timeoutMs: checkTimeoutMs });
    return exit.code === 0 ? exit.lastWords.join('\n') : ending(file, exit);
  } catch (error) {
    return describe(error);
  }
}

function ending(command: string, { code, signal, lastWords }: Exit): string {
  return [`${command} ended with ${signal ?? `code ${code}`}`, ...lastWords].join('\n      ');
}

/** Returns the message with its cause, where `fetch` hides "connection refused". */
function describe(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  return error.cause instanceof Error ? `${error.message} (${error.cause.message})` : error.message;
}

function requireTool(name: string, path: string): string {
  const file = lookUp(name, path);
  if (file === undefined) throw new Error(`${name} is not in PATH`);
  return file;
}

function lookUp(name: string, path: string): string | undefined {
  const folders = path.split(delimiter).filter((folder) => folder !== '');
  return folders.map((folder) => resolve(folder, name)).find(isExecutable);
}

function isExecutable(file: string): boolean {
  try {
    accessSync(file, constants.X_OK);
    return statSync(file).isFile();
  } catch {
    // Missing or not executable for us.
    return false;
  }
}

/** `tools` is a sibling of `sandbox`, and of the `dist` that it is compiled to. */
function toolFolder(name: 'temporal' | 'test-server'): string {
  const root = import.meta.url.replace(/(?:dist\/)?sandbox\/stack\/\w+\.[jt]s$/, '');
  return fileURLToPath(new URL(`tools/${name}`, root));
}
