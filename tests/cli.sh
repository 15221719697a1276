# shellcheck shell=bash disable=SC2034,SC2154
# Sourced: every word of the command line that the mounted tests depend on stands here, and how a start is waited for.

ready_word=ready
uncached=(--attr-timeout 0)
# shoal_up DATA MOUNTPOINT [OPTION...]; shoal_mount ADDRESS MOUNTPOINT DATA [OPTION...]. Both stay in the foreground.
shoal_up() { exec "$SHOAL" up "$1" --servers "$servers" --mount "$2" "${@:3}"; }
shoal_mount() { exec "$SHOAL" mount "$1" "$2" --key "$3/key" "${@:4}"; }
shoal_fsck() { "$SHOAL" fsck "$1" --key "$2/key" --quiet; } # ADDRESS DATA; status 0: clean

# find_shoal: the program, where there is a FUSE to mount with.
find_shoal() {
  [ -e /dev/fuse ] ||
    die "no /dev/fuse: this kernel or container gives no FUSE (modprobe fuse; docker run --device /dev/fuse --cap-add SYS_ADMIN)"
  need fusermount3 mountpoint
  find_program
  servers=${servers:-4}
}

# until_ready NAME PID LOG: waits for the line with the word; the process must be alive meanwhile.
until_ready() {
  local waited=0
  until grep -qw "$ready_word" "$3"; do
    kill -0 "$2" 2>/dev/null || die "$1 ended before it was ready"
    [ $waited -lt 600 ] || die "$1 is not ready after 30 s"
    sleep 0.05
    waited=$((waited + 1))
  done
}

# address_in LOG: the shoal:// address in the line with the word.
address_in() {
  grep -w "$ready_word" "$1" | grep -oE 'shoal://[^[:space:]]+' | sed -n 1p | grep . ||
    die "shoal up's line with '$ready_word' names no shoal:// address"
}

# unmounted MOUNTPOINT: a dead mount answers no stat, so the table of mounts tells.
unmounted() { ! grep -qF " $1 " /proc/mounts; }

# force_unmount MOUNTPOINT
force_unmount() { unmounted "$1" || fusermount3 -u -z "$1" 2>/dev/null || umount -l "$1" || true; }
