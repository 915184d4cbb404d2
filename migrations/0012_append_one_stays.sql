-- What a server of the version before calls to append one change: it goes on while the next is rolled out.
create function kubechronicle.append_one(
    batch uuid, expected bigint, operation smallint, resource text, namespace text, name text, uid text,
    user_name text, user_uid text, user_groups text[], user_extra json, impersonator text, verb text,
    request_uri text, user_agent text, source_address text, field_manager text, audit_id text, object json,
    out head bigint, out committed_at timestamptz, out actual bigint, out create_revision bigint, out version bigint
) language plpgsql as $$
#variable_conflict use_variable
declare
    answer bigint[];
begin
    answer := kubechronicle.append_change(batch, expected, operation,
        coalesce((select c.class from kubechronicle.resource_classes c where c.resource = append_one.resource), 'long'),
        resource, namespace, name, uid, user_name, user_uid, user_groups, user_extra, impersonator, verb,
        request_uri, user_agent, source_address, field_manager, audit_id, object);
    head := answer[1];
    committed_at := timestamptz 'epoch' + answer[2] * interval '1 microsecond';
    actual := answer[3];
    create_revision := answer[4];
    version := answer[5];
end $$;
