-- Finding changes: those of a namespace and those somebody made, newest or oldest first, without looking at all others.
-- Objects, and kinds of objects, have their indexes already.

create index on kubechronicle.log (namespace, revision);
create index on kubechronicle.log (user_name, revision);
