import { nearestName } from '../api/nearestName.js';
import table from './commands.json' with { type: 'json' };
import { wrapped } from './table.js';

/** A command's help text. `takes` also defines the flags that are parsed and completed. */
type Command = {
  readonly takes?: string;
  readonly does: string;
  readonly flags?: { readonly [flag: string]: string };
  readonly more?: string;
  /** Whether the command changes something, so that the audit log records the operator and the reason. */
  readonly signs?: boolean;
  readonly examples: readonly string[];
};

const commands = new Map<string, Command>(Object.entries(table));
export const commandNames: readonly string[] = [...commands.keys()];

const signing = '--reason TEXT';

function usageOf(name: string): string {
  const { takes = '', signs = false } = commands.get(name) ?? { examples: [], does: '' };
  return ['corridor', name, takes, ...(signs ? [signing] : [])]
    .filter((part) => part !== '')
    .join(' ');
}

/** Returns the flags of one command or of all, and whether each takes a value. */
export function flagsOf(name?: string): Readonly<Record<string, 'string' | 'boolean'>> {
  const usages = (name === undefined ? commandNames : [name]).map(usageOf).join(' ');
  const found = [...usages.matchAll(/--([a-z-]+)( [^\s\]]+)?/g)];
  const own = found.map(([, flag = '', value]) => [
    flag,
    value === undefined ? 'boolean' : 'string',
  ]);
  return { ...Object.fromEntries(own), data: 'string', help: 'boolean', version: 'boolean' };
}

/** Returns how many positional arguments may follow a command's name. */
export function wordsAfter(name: string): number {
  if (name === 'help') return 2;
  const words = (commands.get(name)?.takes ?? '').replace(/\[?--.*$/, '');
  return words.split(' ').filter((word) => word !== '').length;
}

/** Returns the command that the first words name, preferring a name of two words. */
export function commandOf([first = '', second = '']: readonly string[]): string | undefined {
  return [`${first} ${second}`, first].find((name) => commands.has(name));
}

/** Returns the error message for an unknown command, with the nearest known one if there is one. */
export function unknownCommand(words: readonly string[]): string {
  const [group = '', verb = ''] = words;
  if (group === '') return 'A command is missing.';
  const verbs = commandNames.flatMap((name) =>
    name.startsWith(`${group} `) ? [name.slice(group.length + 1)] : [],
  );
  if (verb === '' && verbs.length > 0) return `"${group}" needs a subcommand: ${verbs.join(', ')}.`;
  const sent = verb === '' ? group : `${group} ${verb}`;
  const nearest = nearestName(sent, commandNames) ?? nearestName(verb, verbs);
  if (nearest !== undefined) {
    const meant = verbs.includes(nearest) ? `${group} ${nearest}` : nearest;
    return `There is no command "${sent}". Did you mean ${meant}?`;
  }
  return verbs.length === 0
    ? `There is no command "${sent}".`
    : `There is no command "${sent}": ${group} takes ${verbs.join(', ')}.`;
}

/** Returns the help text of a command, or lists the commands of a group, or all commands. */
export function helpOn(words: readonly string[]): string | undefined {
  const name = commandOf(words);
  const command = name === undefined ? undefined : commands.get(name);
  if (name !== undefined && command !== undefined) return explanation(name, command);
  const [group = ''] = words;
  const found = commandNames.filter((each) => group === '' || each.startsWith(`${group} `));
  if (found.length === 0) return undefined;
  return group === '' ? [title, ...overview(found), ending].join('\n') : overview(found).join('\n');
}

const title = 'corridor: cross-currency payouts\n';

const ending = `
corridor help COMMAND explains a command, with examples. Commands that change
something need --reason TEXT. --json prints JSON, with amounts in minor units.

Commands on a deployment need DATABASE_URL (a login of corridor_operator),
TEMPORAL_ADDRESS, and your key in CORRIDOR_OPERATOR_KEY or in the file that
CORRIDOR_OPERATOR_KEY_FILE names. Without DATABASE_URL they use the stack in
--data DIR (.corridor). An admin gives you a key with corridor operators add;
migrate, operators first (both with the owner's login) and doctor need none.

Exit codes: 0 done; 1 refused, no such object, or a problem was found;
2 wrong usage; 3 not configured, or not reachable.`;

function overview(names: readonly string[]): readonly string[] {
  const width = Math.max(...names.map((name) => name.length));
  return names.map((name) => `  ${name.padEnd(width)}  ${commands.get(name)?.does}`);
}

function explanation(name: string, { does, flags = {}, more, examples }: Command): string {
  const about = `${does.charAt(0).toUpperCase()}${does.slice(1)}.${more === undefined ? '' : ` ${more}`}`;
  return [
    wrapped(usageOf(name), '', '    '),
    '',
    wrapped(about, '  '),
    ...Object.entries(flags).flatMap(([flag, text]) => ['', `  ${flag}`, wrapped(text, '      ')]),
    '',
    ...examples.map((example) => `  $ ${example}`),
  ].join('\n');
}

/** Returns a completion script for bash or zsh that knows the words and flags of every command. */
export function completion(shell: string): string | undefined {
  if (shell !== 'bash' && shell !== 'zsh') return undefined;
  const groups = [...new Set(commandNames.map((name) => name.split(' ')[0] ?? ''))];
  const cases = ['', ...groups].flatMap((group) => {
    const next = commandNames.filter((name) => name.startsWith(`${group} `));
    const words = group === '' ? groups : next.map((name) => name.slice(group.length + 1));
    return words.length === 0 ? [] : [`    '${group}') words='${words.join(' ')}' ;;`];
  });
  const flags = commandNames.map((name) => {
    const known = Object.keys(flagsOf(name)).map((flag) => `--${flag}`);
    return `    '${name}'*) words='${known.join(' ')}' ;;`;
  });
  return [
    ...(shell === 'zsh' ? ['autoload -U +X bashcompinit && bashcompinit'] : []),
    '_corridor() {',
    `  local words= before="\${COMP_WORDS[*]:1:COMP_CWORD-1}"`,
    '  case "$before" in',
    ...cases,
    ...flags,
    '  esac',
    `  COMPREPLY=($(compgen -W "$words" -- "\${COMP_WORDS[COMP_CWORD]}"))`,
    '}',
    'complete -o default -F _corridor corridor',
  ].join('\n');
}
