-- Why: the chunks of a resumed batch become due, so that the sweep wakes those that the command cannot. Until
-- now such a chunk went on at the end of its pause, up to a quarter of an hour later. As the owner, because the
-- operators' login changes only what an audit line stands for.
create function resume_chunks() returns trigger language plpgsql
security definer set search_path = pg_catalog, public, pg_temp as $$
begin
  -- The time of `step` in db/wakeTimes.ts.
  update batch_chunks set wake_at = now() + interval '5 seconds'
   where batch_id = new.id and wake_at is not null;
  return null;
end $$;
revoke execute on function resume_chunks() from public;
create trigger resumed after update of paused_at on batches for each row
  when (old.paused_at is not null and new.paused_at is null) execute function resume_chunks();
