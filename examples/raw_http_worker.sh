#!/bin/sh
# A worker without the SDK: POSIX shell, curl, and python3 to read JSON. It works off the queue `shout`. The work is
# done by any program that reads the input of a job and prints its result, both JSON; by default, this turns
# {"text": "hello"} into "HELLO". Producers may be in any language:
#
#   sh examples/raw_http_worker.sh [program [argument...]]
#   python -c 'import runstate; print(runstate.queue("shout")({"text": "hello"}))'
set -eu
[ $# -gt 0 ] || set -- python3 -c 'import json, sys; print(json.dumps(json.load(sys.stdin)["text"].upper()))'
lease=${LEASE_SECONDS:-30}

space="$RUNSTATE_BASE_URL/v1/spaces/$RUNSTATE_SPACE_ID"
random() { od -An -N16 -tx1 /dev/urandom | tr -d ' \n'; }
me="\"holder\": \"shell-$$\", \"holderSession\": \"$(random)\""

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
answer=$folder/answer
# Not on the command line of curl, where everybody on the machine could read it.
printf 'Authorization: Bearer %s\n' "$RUNSTATE_API_KEY" >"$folder/headers"

# call METHOD PATH BODY: prints the status, and leaves the answer in $answer. A call that got no answer, 429 or 503 is
# sent again, under the same Idempotency-Key: had it been carried out the first time, the answer is the same.
call() {
  curl -sS -X "$1" "$space$2" -d "$3" -H "@$folder/headers" -H "Idempotency-Key: $(random)" \
    --max-time 40 --retry 100 --retry-all-errors --retry-max-time 600 -o "$answer" -w '%{http_code}'
}

# field NAME: that member of the answer, texts bare and everything else as JSON.
field() {
  python3 -c 'import json, sys
value = json.load(open(sys.argv[1]))[sys.argv[2]]
print(value if isinstance(value, str) else json.dumps(value))' "$answer" "$1"
}

# Renews the lease of $message every third of it, for as long as there is a file of its name. When that is refused, the
# job is nobody's or somebody else's: takes the file away and ends the work.
renew() {
  exec >/dev/null 2>&1
  answer=$folder/renewal
  while sleep $((lease / 3)) && [ -e "$folder/$message" ]; do
    [ "$(call POST "/messages/$message/renew" '{"token": "'"$token"'"}')" = 200 ] ||
      { rm "$folder/$message" && kill "$1"; }
  done
}

# settle HOW BODY. It may be refused: with STALE_CLAIM, for one, since the job is no longer ours.
settle() { [ "$(call POST "/messages/$message/$1" "$2")" = 200 ]; }

[ "$(call PUT "/mailboxes/by-name/shout" '{}')" = 200 ] || { cat "$answer" >&2; exit 1; }
box=$(field id)
[ "$(call PUT "/runs/${RUNSTATE_RUN:-default}" '{}')" = 200 ] || { cat "$answer" >&2; exit 1; }
run=$(field id)
echo "shell-$$ works"

# SIGTERM and Ctrl-C: no more jobs; the one at hand is ended and handed back. It is given a second, since a signal to a
# program that has only just been started would be lost.
job='' stopping=''
end_job() { [ -z "$job" ] || { sleep 1; kill "$job" 2>/dev/null || :; }; }
trap 'stopping=yes; end_job' TERM INT

while [ -z "$stopping" ]; do
  status=$(call POST /tasks/admit '{"scopeId": "'"$run"'", "mailboxId": "'"$box"'", '"$me"',
    "leaseSeconds": '"$lease"', "waitMs": 5000, "includeDescendants": true}')
  case $status in
    204) continue ;;                   # nothing to do within five seconds
    200) ;;
    409) echo "shell-$$ ends with the run"; exit 0 ;;
    *) cat "$answer" >&2; exit 1 ;;
  esac
  message=$(field messageId) token=$(field token)
  field payload >"$folder/input"
  touch "$folder/$message"
  failed=''
  if [ -z "$stopping" ]; then
    "$@" <"$folder/input" >"$folder/result" & job=$!
    renew "$job" & renewer=$!
    [ -z "$stopping" ] || end_job # the signal came in between
    wait "$job" 2>/dev/null || failed=$?
    job=''
    kill "$renewer" 2>/dev/null || :
  fi
  if ! rm "$folder/$message" 2>/dev/null; then
    echo "shell-$$ has lost $message"
  elif [ -n "$stopping" ]; then
    settle nack '{"token": "'"$token"'", "retry": true, "handBack": true}' || :
  elif [ -n "$failed" ]; then
    settle nack '{"token": "'"$token"'", "retry": true, "error": "the program ended with '"$failed"'"}' || :
  elif settle complete '{"token": "'"$token"'", "result": {"payload": '"$(cat "$folder/result")"'}}'; then
    echo "shell-$$ has done $message"
  else
    settle nack '{"token": "'"$token"'", "retry": false, "error": "its result cannot be recorded"}' || :
  fi
done
