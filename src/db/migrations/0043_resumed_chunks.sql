-- Why: the chunks of a resumed batch are made due, so that the sweep wakes those that the command cannot.
grant update (wake_at) on batch_chunks to corridor_operator;
