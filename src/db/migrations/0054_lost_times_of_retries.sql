-- Why: a payout that was sent in a time that the database has lost, and then refused or canceled because
-- it was pending again, looked unpaid, so its retry paid a second time. The API, which accepts retries, has to
-- know of that time, as operators do since 0051.

grant execute on function database_history() to corridor_api;
