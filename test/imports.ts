import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, normalize, relative, sep } from 'node:path';

/** The text of every TypeScript file in a folder, by its relative path such as `domain/money.ts`. */
export type SourceFiles = ReadonlyMap<string, string>;

/** Violations of a rule, one sentence each; empty if the rule holds. */
export type Violations = readonly string[];

type Import = { readonly specifier: string; readonly isType: boolean };

/** What a part of src may import. A target is a folder (`domain/`) or a file without `.ts`. */
type Rule = {
  readonly ours: readonly string[];
  readonly types?: readonly string[];
  /** The packages that the part may use; without a list, any package and Node's own modules. */
  readonly packages?: readonly string[];
};

const readsNothing: Rule = { ours: [] };
const composes: Rule = { ours: [''] };

/**
 * Which part may import which (design, section 8). The first entry whose prefix matches a path
 * applies, and every file may import from its own entry's folder.
 */
const table: readonly (readonly [part: string, rule: Rule])[] = [
  ['domain/', { ours: [], packages: ['big.js', 'ibantools'] }],
  ['contract/', { ours: ['domain/'], types: ['db/'], packages: ['zod'] }],
  [
    'workflows/',
    {
      ours: ['domain/'],
      types: ['activities/'],
      packages: [
        ...['@temporalio/workflow', '@temporalio/common'],
        '@temporalio/interceptors-opentelemetry/lib/workflow/index.js',
      ],
    },
  ],
  ['db/', { ours: ['domain/', 'metrics', 'sealing'] }],
  ['rates/', { ours: ['domain/'] }],
  ['rails/', { ours: ['domain/', 'spans', 'metrics'] }],
  ['webhooks/', { ours: ['domain/', 'keyedLimit'] }],
  [
    'temporal/',
    { ours: ['domain/', 'workflows/messages', 'metrics', 'sealing'], types: ['config'] },
  ],
  [
    'activities/',
    {
      ours: [
        ...['domain/', 'contract/', 'db/', 'rates/', 'rails/', 'webhooks/', 'temporal/'],
        ...['workflows/messages', 'keyedLimit', 'metrics'],
      ],
    },
  ],
  ['api/main', composes],
  [
    'api/',
    {
      ours: [
        ...['domain/', 'contract/', 'db/', 'rails/', 'temporal/', 'workflows/messages'],
        ...['webhooks/guard', 'webhooks/signature', 'webhooks/retrySchedule'],
        ...['keyedLimit', 'spans', 'log', 'metrics'],
      ],
    },
  ],
  ['worker/', composes],
  ['codec/', composes],
  ['signIn/provider', { ours: [], types: ['config'] }],
  ['signIn/', composes],
  [
    'cli/',
    {
      ours: [
        ...[
          'domain/',
          'db/',
          'temporal/',
          'workflows/messages',
          'api/apiKey',
          'api/nearestName',
          'contract/versions/',
        ],
        ...['rates/', 'signIn/provider', 'config', 'sandbox/'],
      ],
    },
  ],
  ['sandbox/bank/', readsNothing],
  ['sandbox/stack/', readsNothing],
  ['sandbox/', composes],
  ['config', { ours: [], packages: ['node:crypto', 'node:fs', 'zod'] }],
  ['keyedLimit', { ours: [], packages: ['p-limit'] }],
  ['log', { ours: ['domain/fieldRule'] }],
  ['metricsServer', { ours: ['metrics'] }],
  ['metrics', { ours: [], packages: ['prom-client'] }],
  ['sealing', { ours: [], packages: ['node:crypto'] }],
  ['spans', readsNothing],
  ['tracing', readsNothing],
  ['process', { ours: ['config', 'log', 'tracing'] }],
];

/** Entry points of processes. Every other file must be reachable from one of them. */
const entries = [
  'api/main.ts',
  'worker/main.ts',
  'worker/bundle.ts',
  'worker/withoutCallStacks.ts',
  'cli/main.ts',
  'sandbox/bank/main.ts',
  'workflows/index.ts',
  // Loaded by the SDK, which is given its path.
  'temporal/failureConverter.ts',
  // Bundled with the workflows by its path.
  'workflows/traced.ts',
  'codec/main.ts',
  'signIn/main.ts',
];

/** Files that may pass all of `process.env` to a configuration or to a child process. */
const passesEnvironment = /^(api\/main\.ts|worker\/|codec\/|signIn\/main|cli\/|sandbox\/)/;
const readsEnvironment = new Set(['config.ts', 'sandbox/bank/main.ts']);

/** Reads the files of a folder. `prefix` is prepended to their paths if the folder is not `src`. */
export function readSourceFiles(root: string, prefix = ''): SourceFiles {
  const paths = readdirSync(root, { recursive: true, encoding: 'utf8' });
  const files = paths.filter((path) => path.endsWith('.ts')).sort();
  return new Map(
    files.map((path) => [
      prefix + path.split(sep).join('/'),
      readFileSync(join(root, path), 'utf8'),
    ]),
  );
}

/** Imports that the table does not allow: from another part, or of a package that the part may not use. */
export function forbiddenImports(files: SourceFiles): Violations {
  return perFile(files, (path, text) => {
    const entry = table.find(([part]) => path.startsWith(part));
    if (entry === undefined) return [`${path} belongs to no part of the table`];
    const [part, rule] = entry;
    return importsOf(text)
      .filter((found) => !isAllowed(path, part, rule, found))
      .map(({ specifier }) => `${path} must not import ${specifier}`);
  });
}

function isAllowed(path: string, part: string, rule: Rule, { specifier, isType }: Import): boolean {
  if (!specifier.startsWith('.')) return rule.packages?.includes(specifier) ?? true;
  const target = targetOf(path, specifier);
  // A file may import its own data: the JSON file of the same name next to it.
  if (target === path.replace(/ts$/, 'json')) return true;
  const own = part.endsWith('/') ? [part] : [];
  const allowed = [...own, ...rule.ours, ...(isType ? (rule.types ?? []) : [])];
  return allowed.some((ours) =>
    ours === '' || ours.endsWith('/') ? target.startsWith(ours) : target === `${ours}.ts`,
  );
}

/**
 * Relative imports that match no source file, and dynamic imports whose path is not a literal. The
 * compiler checks imports of data (JSON).
 */
export function unreadableImports(files: SourceFiles): Violations {
  return perFile(files, (path, text) => [
    ...importsOf(text)
      .filter(({ specifier }) => /^\.(?!.*\.json$)/.test(specifier))
      .filter(({ specifier }) => !files.has(targetOf(path, specifier)))
      .map(({ specifier }) => `${path} imports ${specifier}, which is not there`),
    ...(/\bimport\((?!\s*'[^']+'\s*\))|\brequire\(/.test(withoutComments(text))
      ? [`${path} imports something that only shows when it runs`]
      : []),
  ]);
}

/** Cycles of files that import each other, including types: such files can only be understood together. */
export function importCycles(files: SourceFiles): Violations {
  const finished = new Set<string>();
  const cycles: string[] = [];
  const visit = (path: string, trail: readonly string[]) => {
    const start = trail.indexOf(path);
    if (start >= 0) cycles.push([...trail.slice(start), path].join(' → '));
    if (start >= 0 || finished.has(path)) return;
    for (const target of importedFiles(files, path)) visit(target, [...trail, path]);
    finished.add(path);
  };
  for (const path of files.keys()) visit(path, []);
  return cycles;
}

/** Files that no entry point reaches. */
export function unreachableFiles(files: SourceFiles): Violations {
  const reached = new Set<string>();
  const visit = (path: string) => {
    if (reached.has(path)) return;
    reached.add(path);
    importedFiles(files, path).forEach(visit);
  };
  entries.forEach(visit);
  return [...files.keys()]
    .filter((path) => !reached.has(path))
    .map((path) => `${path} is imported by nothing that runs`);
}

/** Only config.ts and the bank's main may read variables; mains pass on the whole environment. */
export function environmentReaders(files: SourceFiles): Violations {
  return perFile(files, (path, text) => {
    if (readsEnvironment.has(path)) return [];
    const code = withoutComments(text);
    const uses = code.match(/\bprocess\s*\??\.\s*env\b|\bprocess\[|\}\s*=\s*process\b/g) ?? [];
    const whole =
      code.match(/(?:\bread\w+Config\(|\.\.\.|\benv: |\breturn )process\.env(?=\s*[,;)}])/g) ?? [];
    const allowed = passesEnvironment.test(path) ? whole.length : 0;
    const isImported = importsOf(text).some(({ specifier }) => /^(node:)?process$/.test(specifier));
    return uses.length > allowed || isImported ? [`${path} reads the environment`] : [];
  });
}

/** Names that say nothing about the content of a file or folder. */
export function emptyNames(files: SourceFiles): Violations {
  const empty = new Set(['util', 'utils', 'helper', 'helpers', 'common', 'manager', 'misc']);
  return perFile(files, (path) => {
    const words = path.replace(/\.ts$/, '').match(/[A-Z]?[a-z]+/g) ?? [];
    const found = words.find((word) => empty.has(word.toLowerCase()));
    return found === undefined ? [] : [`${path} is named ${found}`];
  });
}

/** Files longer than `linesPerFile` with comments, and a total above `linesOfCode` without comments. */
export function oversize(
  files: SourceFiles,
  limits: { readonly linesPerFile: number; readonly linesOfCode: number },
): Violations {
  const total = [...files.values()].reduce((sum, text) => sum + linesOfCode(text), 0);
  return [
    ...perFile(files, (path, text) => {
      const lines = text.trimEnd().split('\n').length;
      return lines < limits.linesPerFile ? [] : [`${path} has ${lines} lines`];
    }),
    ...(total < limits.linesOfCode ? [] : [`all files have ${total} lines of code`]),
  ];
}

/** Clocks, randomness and effects in the domain: with them, equal input could give different results. */
export function impureDomain(files: SourceFiles): Violations {
  const effect =
    /\bDate\.now\b|\bDate\(\)|\bMath\.random\b|\b(?:process|performance|crypto|console)\.|\b(?:fetch|setTimeout|setInterval|setImmediate|queueMicrotask)\(/;
  return perFile(files, (path, text) => {
    const found = path.startsWith('domain/') ? effect.exec(withoutComments(text)) : null;
    return found === null ? [] : [`${path} uses ${found[0]}`];
  });
}

/** Floating point in the folders that handle money and rates, except in the files of `exceptions`. */
export function floats(
  files: SourceFiles,
  exceptions: Readonly<Record<string, string>>,
): Violations {
  const float = /\b(?:Number\(|(?:Number\.)?parseFloat\b|map\(Number\))|\.toNumber\(/;
  return perFile(files, (path, text) => {
    const isMoney = /^(domain|db)\//.test(path) && exceptions[path] === undefined;
    const found = isMoney ? float.exec(withoutComments(text)) : null;
    return found === null ? [] : [`${path} uses ${found[0]}`];
  });
}

/** Markers of unfinished work, which belongs in an issue. */
export function leftovers(files: SourceFiles): Violations {
  return perFile(files, (path, text) => {
    const found = /\b(?:TODO|FIXME|XXX|HACK)\b/.exec(text);
    return found === null ? [] : [`${path} says ${found[0]}`];
  });
}

function perFile(
  files: SourceFiles,
  check: (path: string, text: string) => Violations,
): Violations {
  return [...files].flatMap(([path, text]) => check(path, text));
}

function importedFiles(files: SourceFiles, path: string): readonly string[] {
  return importsOf(files.get(path) ?? '')
    .filter(({ specifier }) => specifier.startsWith('.'))
    .map(({ specifier }) => targetOf(path, specifier))
    .filter((target) => files.has(target));
}

/**
 * Resolves an import: `./money.js` in `domain/fx.ts` is `domain/money.ts`; `src` and `sandbox` are siblings.
 * The build writes the bundle of the commands, of which there is only a declaration.
 */
function targetOf(path: string, specifier: string): string {
  const target = relative('.', normalize(join(dirname(path), specifier)));
  return target
    .split(sep)
    .join('/')
    .replace(/^(?:\.\.\/|src\/)/, '')
    .replace(/^cli\/bundle\.js$/, 'cli/bundle.d.ts')
    .replace(/\.js$/, '.ts');
}

/**
 * The imports of a formatted file, in which each one starts a line. `import { type A }` counts as a
 * value import: with `verbatimModuleSyntax` it still loads the file.
 */
function importsOf(text: string): readonly Import[] {
  const code = withoutComments(text);
  const fixed = /^(?:import|export)\s+(type\s+)?(?:[\w$*{},\s]+?\s+from\s+)?'([^']+)'/gm;
  const dynamic = /\bimport\(\s*'([^']+)'\s*\)/g;
  return [
    ...[...code.matchAll(fixed)].map(([, type, specifier]) => ({
      specifier: specifier ?? '',
      isType: type !== undefined,
    })),
    ...[...code.matchAll(dynamic)].map(([, specifier]) => ({
      specifier: specifier ?? '',
      isType: false,
    })),
  ];
}

function linesOfCode(text: string): number {
  return withoutComments(text)
    .split('\n')
    .filter((line) => line.trim() !== '').length;
}

/** Removes comments. The pattern matches strings first, so that `//` in a URL is kept. */
function withoutComments(text: string): string {
  const tokens =
    /('(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*"|`(?:\\.|[^`\\])*`)|\/\*[\s\S]*?\*\/|\/\/[^\n]*/g;
  return text.replace(tokens, (_token, string: string | undefined) => string ?? '');
}
