-- Why: the event of a batch's end hung on whichever payout had finished last, and was listed among
-- that payout's. An event names what it is about: a payout or a batch. It is written in the
-- transaction that has just written its subject, so a foreign key would prove nothing more.

alter table events drop constraint events_payout_id_fkey;
alter table events rename payout_id to subject_id;
alter table events disable trigger append_only;
update events set subject_id = data ->> 'id' where type = 'batch.completed';
alter table events enable trigger append_only;
alter table events alter subject_id set not null,
  add check (subject_id ~ case when type like 'batch.%' then '^bat_' else '^po_' end);
