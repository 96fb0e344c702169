import v8 from 'node:v8';

/**
 * Loaded before a worker of workflows (`--import`): its threads do not keep a call stack for each promise. With
 * them a payout takes a quarter more of the worker's time (docs/performance.md), for a tab of the Temporal UI that
 * names lines of our code, where the details of a workflow say what it waits for. The SDK (1.24) does
 * without them where V8 has no such hook, and then refuses the query. A worker that is started without
 * this file answers it.
 */
v8.promiseHooks.createHook = () => {
  throw new Error('Call stacks of workflows are off: see withoutCallStacks.ts.');
};
