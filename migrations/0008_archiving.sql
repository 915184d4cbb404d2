-- That history is to be archived before it is dropped, whichever server drops it.

alter table kubechronicle.retention_classes add column to_archive boolean not null default false;
