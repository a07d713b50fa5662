-- Mailboxes: the definitions of queues. Table: mailboxes.  Locks: idempotency key, the name (advisory) or the
-- row; never on the way of a message.

CREATE FUNCTION kernel.mailbox_facts(p_space text, p_id uuid) RETURNS json LANGUAGE sql VOLATILE AS $$
  SELECT pg_catalog.json_build_object('id', b.id, 'name', b.name, 'mode', b.mode, 'backlogLimit',
    b.backlog_limit, 'maxAttempts', b.max_attempts, 'requirements', b.requirements::json, 'createdAt',
      kernel.wire_time(b.created_at))
  FROM runstate.mailboxes b WHERE b.space_id = p_space AND b.id = p_id
$$;

CREATE FUNCTION kernel.no_mailbox(p_id uuid) RETURNS kernel.reply LANGUAGE sql IMMUTABLE AS $$
  SELECT kernel.refuse('NOT_FOUND', 'mailbox ' || p_id::text || ' does not exist in this space')
$$;

-- Write what the tasks of a mailbox need; none for '{}'.
CREATE FUNCTION kernel.mailbox_require(p_space text, p_id uuid, p_requirements text) RETURNS void
LANGUAGE sql VOLATILE AS $$
  UPDATE runstate.mailboxes b SET requirements = NULLIF(p_requirements, '{}'), lane = l.lane, need = l.need
    FROM kernel.lane_of(p_space, p_requirements::json) l WHERE b.space_id = p_space AND b.id = p_id
$$;

-- Write a new mailbox and its event; the name is locked and free.
CREATE FUNCTION kernel.mailbox_insert(p_space text, p_id uuid, p_name text, p_mode text, p_backlog_limit int,
  p_max_attempts int, p_requirements text, p_now timestamptz, p_status int) RETURNS kernel.reply
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  INSERT INTO runstate.mailboxes (space_id, id, name, mode, backlog_limit, max_attempts, created_at)
  VALUES (p_space, p_id, p_name, COALESCE(p_mode, 'WORK'), p_backlog_limit, COALESCE(p_max_attempts, 5),
    p_now);
  PERFORM kernel.mailbox_require(p_space, p_id, COALESCE(p_requirements, '{}'));
  PERFORM kernel.event(p_space, p_now, 'resource.created', NULL, 'mailbox', p_id::text,
    pg_catalog.json_build_object('name', p_name), NULL);
  RETURN kernel.done(p_status, kernel.mailbox_facts(p_space, p_id), NULL);
END $$;

-- Create a mailbox. Refuses: CONFLICT (the name exists), NOT_FOUND and VALIDATION_FAILED (requirements).
CREATE FUNCTION kernel.mailbox_create(p_space text, p_id uuid, p_name text, p_mode text, p_backlog_limit int,
  p_max_attempts int, p_requirements text, p_idem text, p_print bytea) RETURNS kernel.reply
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_now timestamptz;
  v_reply kernel.reply;
BEGIN
  PERFORM kernel.kernel_enter();
  v_reply := kernel.idempotency_look(p_space, p_idem, p_print);
  IF v_reply.changed IS NULL THEN
    v_reply := kernel.needs_refusal(p_space, p_requirements::json);
  END IF;
  IF v_reply.changed IS NOT NULL THEN
    RETURN v_reply;
  END IF;
  PERFORM pg_catalog.pg_advisory_xact_lock(kernel.lock_key('mailbox', p_space, p_name));
  PERFORM 1 FROM runstate.mailboxes b WHERE b.space_id = p_space AND b.name = p_name;
  IF FOUND THEN
    RETURN kernel.refuse('CONFLICT', 'mailbox "' || p_name || '" exists already');
  END IF;
  v_now := kernel.kernel_now();
  v_reply := kernel.mailbox_insert(p_space, p_id, p_name, p_mode, p_backlog_limit, p_max_attempts,
    p_requirements, v_now, 201);
  RETURN kernel.idempotency_keep(p_space, p_idem, p_print, v_now, v_reply);
END $$;

-- Find a mailbox by name; create it, or change the settings that are given. p_configure: the caller may do so
-- with settings; finding one, matching it, and creating one with defaults needs no more than runtime.
-- Refuses: CONFLICT (another mode), FORBIDDEN, NOT_FOUND and VALIDATION_FAILED (requirements).
CREATE FUNCTION kernel.mailbox_ensure(p_space text, p_id uuid, p_name text, p_mode text, p_backlog_limit int,
  p_max_attempts int, p_requirements text, p_configure boolean, p_idem text, p_print bytea)
RETURNS kernel.reply LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_now timestamptz;
  v_id uuid;
  v_mode text;
  v_matches boolean;
  v_reply kernel.reply;
BEGIN
  PERFORM kernel.kernel_enter();
  v_reply := kernel.idempotency_look(p_space, p_idem, p_print);
  IF v_reply.changed IS NULL THEN
    v_reply := kernel.needs_refusal(p_space, p_requirements::json);
  END IF;
  IF v_reply.changed IS NOT NULL THEN
    RETURN v_reply;
  END IF;
  FOR v_turn IN 1..2 LOOP
    SELECT b.id, b.mode, (p_backlog_limit IS NULL OR b.backlog_limit IS NOT DISTINCT FROM p_backlog_limit)
           AND (p_max_attempts IS NULL OR b.max_attempts = p_max_attempts)
           AND (p_requirements IS NULL OR COALESCE(b.requirements, '{}') = p_requirements)
      INTO v_id, v_mode, v_matches FROM runstate.mailboxes b WHERE b.space_id = p_space AND b.name = p_name;
    IF FOUND AND v_mode <> p_mode THEN
      RETURN kernel.refuse('CONFLICT', 'mailbox "' || p_name || '" has mode ' || v_mode || ', not '
        || p_mode);
    ELSIF FOUND AND v_matches THEN
      RETURN kernel.seen(kernel.mailbox_facts(p_space, v_id), NULL, NULL);
    ELSIF NOT p_configure AND (p_mode IS NOT NULL OR p_backlog_limit IS NOT NULL
      OR p_max_attempts IS NOT NULL OR p_requirements IS NOT NULL) THEN
      RETURN kernel.refuse('FORBIDDEN', 'this key lacks the permission ''resource_config'' to give mailbox "'
        || p_name || '" these settings');
    END IF;
    IF v_turn = 1 THEN
      PERFORM pg_catalog.pg_advisory_xact_lock(kernel.lock_key('mailbox', p_space, p_name));
    END IF;
  END LOOP;
  v_now := kernel.kernel_now();
  IF v_id IS NULL THEN
    v_reply := kernel.mailbox_insert(p_space, p_id, p_name, p_mode, p_backlog_limit, p_max_attempts,
      p_requirements, v_now, 200);
  ELSE
    UPDATE runstate.mailboxes b SET backlog_limit = COALESCE(p_backlog_limit, b.backlog_limit),
      max_attempts = COALESCE(p_max_attempts, b.max_attempts) WHERE b.space_id = p_space AND b.id = v_id;
    IF p_requirements IS NOT NULL THEN
      PERFORM kernel.mailbox_require(p_space, v_id, p_requirements);
    END IF;
    PERFORM kernel.event(p_space, v_now, 'resource.updated', NULL, 'mailbox', v_id::text,
      pg_catalog.json_build_object('name', p_name), NULL);
    v_reply := kernel.done(200, kernel.mailbox_facts(p_space, v_id), NULL);
  END IF;
  RETURN kernel.idempotency_keep(p_space, p_idem, p_print, v_now, v_reply);
END $$;
