import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, normalize, relative, sep } from 'node:path';

/** The text of every TypeScript file of a folder, by its path in it: `domain/money.ts`. */
export type SourceFiles = ReadonlyMap<string, string>;

/** What breaks a rule, one sentence each; empty when the rule holds. */
export type Violations = readonly string[];

type Import = { readonly specifier: string; readonly isType: boolean };

/** What a part of src may import; a target is a folder (`domain/`) or a file without `.ts`. */
type Rule = {
  readonly ours: readonly string[];
  readonly types?: readonly string[];
  /** The packages it may use; any, Node's own included, when there is no list. */
  readonly packages?: readonly string[];
};

const readsNothing: Rule = { ours: [] };
const composes: Rule = { ours: [''] };

/**
 * Who may import whom (design, section 8). The first entry that a path starts with decides, and
 * every file may import its own entry's folder.
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
  ['db/', { ours: ['domain/', 'metrics'] }],
  ['rates/', { ours: ['domain/'] }],
  ['rails/', { ours: ['domain/', 'spans', 'metrics'] }],
  ['webhooks/', { ours: ['domain/', 'keyedLimit'] }],
  ['temporal/', { ours: ['domain/', 'workflows/messages', 'metrics'], types: ['config'] }],
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
  ['log', readsNothing],
  ['metricsServer', { ours: ['metrics'] }],
  ['metrics', { ours: [], packages: ['prom-client'] }],
  ['spans', readsNothing],
  ['tracing', readsNothing],
  ['process', { ours: ['config', 'tracing'] }],
];

/** Where processes begin; every other file is there because one of these needs it. */
const entries = [
  'api/main.ts',
  'worker/main.ts',
  'worker/bundle.ts',
  'worker/withoutCallStacks.ts',
  'cli/main.ts',
  'sandbox/bank/main.ts',
  'workflows/index.ts',
  // Loaded by the SDK, by its path.
  'temporal/failureConverter.ts',
  // Bundled beside the workflows, by its path.
  'workflows/traced.ts',
  'codec/main.ts',
  'signIn/main.ts',
];

/** Files that may hand `process.env` on as a whole, to a configuration or to a child process. */
const passesEnvironment = /^(api\/main\.ts|worker\/|codec\/|signIn\/main|cli\/|sandbox\/)/;
const readsEnvironment = new Set(['config.ts', 'sandbox/bank/main.ts']);

/** The files of a folder; `prefix` is what their paths begin with where it is not `src`. */
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

/** Imports outside of the table: of another part, or of a package that the part does not use. */
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
  // What a file keeps as data, beside it and under its name.
  if (target === path.replace(/ts$/, 'json')) return true;
  const own = part.endsWith('/') ? [part] : [];
  const allowed = [...own, ...rule.ours, ...(isType ? (rule.types ?? []) : [])];
  return allowed.some((ours) =>
    ours === '' || ours.endsWith('/') ? target.startsWith(ours) : target === `${ours}.ts`,
  );
}

/**
 * Relative imports that name no file of source, and dynamic ones that cannot be read off the text.
 * What is data (JSON) the compiler looks for.
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

/** Rings of files that import each other, types included: such files can only be read together. */
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

/** Files that no process needs. */
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

/** Only config.ts and the bank's main read a variable; mains pass the environment on whole. */
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

/** Names that say nothing of what is in the file or the folder. */
export function emptyNames(files: SourceFiles): Violations {
  const empty = new Set(['util', 'utils', 'helper', 'helpers', 'common', 'manager', 'misc']);
  return perFile(files, (path) => {
    const words = path.replace(/\.ts$/, '').match(/[A-Z]?[a-z]+/g) ?? [];
    const found = words.find((word) => empty.has(word.toLowerCase()));
    return found === undefined ? [] : [`${path} is named ${found}`];
  });
}

/** Files past `linesPerFile`, comments included, and a whole past `linesOfCode`, without them. */
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

/** Clocks, chance and effects in the domain: the same input would not give the same answer. */
export function impureDomain(files: SourceFiles): Violations {
  const effect =
    /\bDate\.now\b|\bDate\(\)|\bMath\.random\b|\b(?:process|performance|crypto|console)\.|\b(?:fetch|setTimeout|setInterval|setImmediate|queueMicrotask)\(/;
  return perFile(files, (path, text) => {
    const found = path.startsWith('domain/') ? effect.exec(withoutComments(text)) : null;
    return found === null ? [] : [`${path} uses ${found[0]}`];
  });
}

/** Floating point in the folders that hold money and rates, but for the files of `exceptions`. */
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

/** What somebody meant to do later belongs in an issue. */
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

/** `./money.js`, seen from `domain/fx.ts`, is `domain/money.ts`; `src` and `sandbox` are neighbours. */
function targetOf(path: string, specifier: string): string {
  const target = relative('.', normalize(join(dirname(path), specifier)));
  return target
    .split(sep)
    .join('/')
    .replace(/^(?:\.\.\/|src\/)/, '')
    .replace(/\.js$/, '.ts');
}

/**
 * The imports of a formatted file, where each begins a line. `import { type A }` counts as a
 * value: with `verbatimModuleSyntax` it still loads the file.
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

/** Strings are matched first, so that `//` in a URL stays. */
function withoutComments(text: string): string {
  const tokens =
    /('(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*"|`(?:\\.|[^`\\])*`)|\/\*[\s\S]*?\*\/|\/\/[^\n]*/g;
  return text.replace(tokens, (_token, string: string | undefined) => string ?? '');
}
