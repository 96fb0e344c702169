-- `corridor payouts show` offered to release an order as never sent that may have been sent in a time that the
-- database has lost: the worker, which decides, knew of that time, and operators could not read it.

grant execute on function database_history() to corridor_operator;
