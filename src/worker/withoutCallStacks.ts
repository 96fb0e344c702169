import v8 from 'node:v8';

/**
 * Loaded before a worker of workflows (`--import`), so that its threads keep no call stack per promise.
 * With call stacks a payout takes a quarter more of the worker's time (docs/performance.md). Their only
 * use is a tab of the Temporal UI that names lines of our code; a workflow's details already say what it
 * waits for. If V8 has no such hook, the SDK (1.24) keeps no call stacks and refuses the query for them.
 * A worker that is started without this file answers the query.
 */
v8.promiseHooks.createHook = () => {
  throw new Error('Call stacks of workflows are off: see withoutCallStacks.ts.');
};
