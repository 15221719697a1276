#!/usr/bin/env bash
# A repository with a real history: clone, status, log, branches, merge, rebase, fsck, gc, repack, worktrees, all inside.
#
#     tests/real/git.sh DIR [short|long] [REPOSITORY]
#
# REPOSITORY: a local one to clone; by default one is made from /usr/include, folder by folder, outside DIR.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"

[ $# -ge 1 ] || die "usage: tests/real/git.sh DIR [short|long] [REPOSITORY]"
length=${2:-short}
need git diff
work_in "$1" git
# Nobody's own settings: the same run everywhere.
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null GIT_TERMINAL_PROMPT=0
export GIT_AUTHOR_NAME=Test GIT_AUTHOR_EMAIL=test@localhost GIT_COMMITTER_NAME=Test GIT_COMMITTER_EMAIL=test@localhost

case $length in
  short) files=1000 commits=6 ;;
  long) files=100000 commits=40 ;;
  *) die "short or long, not '$length'" ;;
esac

# Commits that add, change, move and remove files.
make_history() {
  local into=$1 list=$scratch/list total share n
  git init -q -b main "$into"
  (cd /usr/include && find . -type f -size -400k | LC_ALL=C sort | sed -n "1,${files}p") >"$list"
  total=$(wc -l <"$list")
  share=$((total / commits + 1))
  for ((n = 0; n < commits; n++)); do
    sed -n "$((n * share + 1)),$(((n + 1) * share))p" "$list" | tar -C /usr/include -T - -cf - | tar -C "$into" -xf -
    (
      cd "$into"
      printf 'line %s\n' "$n" >>CHANGES
      seq "$n" 997 90000 >numbers
      git ls-files '*.h' | sed -n "$((n + 1))~97p" | while read -r file; do printf '/* %s */\n' "$n" >>"$file"; done
      [ $n -lt 2 ] || git ls-files '*.h' | sed -n 5p | while read -r file; do git mv -f "$file" "moved-$n.h"; done
      [ $n -lt 3 ] || git ls-files '*.h' | sed -n 9p | xargs git rm -qf --
      ln -sfn "numbers" link-$((n % 3))
      git add -A && git commit -q -m "Step $n" && git tag "step-$n"
    )
  done
}

clean() {
  [ -z "$(git -C "$1" status --porcelain)" ] || die "$1: git status is not clean: $(git -C "$1" status --porcelain | head)"
}
whole() { git -C "$1" fsck --full --strict --no-progress --no-dangling >"$scratch/fsck" 2>&1 || { cat "$scratch/fsck" && die "$1: git fsck"; }; }

source=${3:-$scratch/source}
[ $# -ge 3 ] || make_history "$source"
head=$(git -C "$source" rev-parse HEAD)
say "  source: $(git -C "$source" rev-list --count HEAD) commits, $(git -C "$source" ls-files | wc -l) files"

cd "$work"
# As over a network: packed by one side, indexed by the other.
git clone -q --no-local "$source" clone
[ "$(git -C clone rev-parse HEAD)" = "$head" ] || die "the clone has another HEAD"
clean clone
whole clone
git -C "$source" archive "$head" | tar -t | LC_ALL=C sort | grep -v '/$' >"$scratch/names"
(cd clone && find . -path ./.git -prune -o ! -type d -print | sed 's,^\./,,' | LC_ALL=C sort) | diff "$scratch/names" - >/dev/null ||
  die "the checkout has other files than the commit"

# Loose objects, branches, merge, rebase, stash.
cd clone
git checkout -q -b side HEAD~2 && first=$(git ls-files | sed -n 1p)
for n in 1 2 3; do
  mkdir -p "side/$n" && cp "$first" "side/$n/file" && echo "$n" >>"side/$n/file"
  git add -A && git commit -q -m "Side $n"
done
echo stashed >>side/1/file && git stash -q && clean . && git stash pop -q && git checkout -q side/1/file
git checkout -q main && git merge -q --no-edit side && git branch -q again side && git rebase -q main again
clean .
git checkout -q main
git log --stat --oneline -n 30 >/dev/null
git blame "$first" >/dev/null
git grep -q -e .
whole .
# A refreshed index must find every file unchanged: times, sizes and inode numbers hold still.
git update-index --really-refresh -q || die "files look changed"
git worktree add -q ../worktree HEAD~1 && clean ../worktree && git worktree remove ../worktree

git gc -q --prune=now
whole .
clean .
git repack -q -a -d -f --depth=10
git prune-packed -q
whole .
[ "$(git cat-file --batch-all-objects --batch-check | wc -l)" -gt 100 ] || die "objects are missing"

# A clone by hard links, both sides inside.
cd "$work"
git clone -q --local clone linked
clean linked
whole linked
diff -r --no-dereference --exclude=.git clone linked >/dev/null || die "the second clone differs"
git -C linked fetch -q && git -C linked rev-parse -q --verify origin/side >/dev/null
say "git: ok"
