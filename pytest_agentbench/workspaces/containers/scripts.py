"""What runs in a container around a command: programs for its `sh`, whatever shell that is.

Each tells on stderr that it has begun and how it went, where the command itself has no part: its stderr goes where its
stdout goes. Processes of other users, which keep the container alive, cannot be killed by them, nor by the command.
"""

_SWEEP = """
sweep() {
    if [ "$1" = all ]; then
        read -r first < /proc/1/cmdline
        case $first in *2147483647*) kill -9 -1; return ;; esac
        set -- $$
    fi
    for folder in /proc/[0-9]*; do
        pid=${folder#/proc/}
        read -r fields < "$folder/stat" || continue
        set -- "$1" ${fields##*") "}
        [ "$5" = "$1" ] && [ "$pid" != $$ ] && kill -9 "$pid"
    done
}
tell() {
    ooms=0
    for file in /sys/fs/cgroup/memory.events /sys/fs/cgroup/memory/memory.oom_control; do
        [ -r $file ] && while read -r name value; do [ "$name" = oom_kill ] && ooms=$value; done < $file
    done
    echo "$1 $ooms" >&2
}
"""

RUN_ALONE = f'{_SWEEP}echo $$ >&2\n(exec "$@" 2>&1)\ncode=$?\nsweep all 2>/dev/null\ntell $code'
"""Runs its arguments, kills all else, and tells the exit code and how often memory ran out in the container."""

RUN_BESIDE = f'{_SWEEP}echo $$ >&2\n(exec "$@" 2>&1)\ncode=$?\nsweep $$ 2>/dev/null\ntell $code'
"""The same, but kills only what is left of the command's own session: there are programs that are to stay."""

STAY = 'echo $$ >&2\nexec "$@" 2>&1'
"""Tells the number of its session, and becomes its arguments."""

STAY_APART = 'echo $$ >&2\nexec "$@"'
"""The same, but its arguments' stderr stays apart: it follows the number's line."""

END = f'{_SWEEP}echo $$ >&2\nsweep "$1" 2>/dev/null\ntell 0'
"""Kills a session, or `all`."""
