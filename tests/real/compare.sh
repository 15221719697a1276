# Sourced: two trees compared in all that a copy must keep.

# manifest TREE [WITHOUT]: one line an entry, sorted: path, type, mode, owner, group, size, mtime in ns, number of
# links, target, the first path of the same inode, device numbers, extended attributes. A folder's size and number of
# links are its file system's own affair. Only root can keep owners. A folder
# WITHOUT at the tree's top is left out.
manifest() {
  local tree=$1 skip=()
  [ $# -lt 2 ] || skip=(-path "./$2" -prune -o)
  local owners='%U\t%G'
  [ "$(id -u)" = 0 ] || owners='-\t-'
  (
    cd "$tree"
    find . "${skip[@]}" -printf "%p\\0%y\\t%m\\t$owners\\t%T@\\0%s\\0%n\\0%l\\0%i\\0" | perl -0 -ne '
      chomp; push @f, $_;
      if (@f == 6) { push @entries, [@f]; @f = () }
      END {
        my %first;
        for (sort { $a->[0] cmp $b->[0] } @entries) {
          my ($path, $attributes, $size, $links, $target, $inode) = @$_;
          my $directory = $attributes =~ /^d/;
          ($size, $links) = ("-", "-") if $directory;
          $first{$inode} //= $path;
          my $twin = $directory ? "-" : $first{$inode};
          my $line = join("\t", $path, $attributes, $size, $links, $target, $twin);
          $line =~ s/\n/\\n/g;
          print "$line\n";
        }
      }'
    find . \( -type b -o -type c \) -exec stat -c '%n device %t:%T' {} + | LC_ALL=C sort
    getfattr --recursive --physical --no-dereference --match='^user\.' --dump --encoding=hex . 2>/dev/null |
      perl -00 -ne 'chomp; push @blocks, join("\n", sort split /\n/) . "\n"; END { print sort @blocks }'
  )
}

same_manifest() {
  diff "$1" "$2" >"$scratch/difference" && return
  head -n 20 "$scratch/difference" | cut -c 1-300
  die "$3: differs in $(grep -c '^[<>]' "$scratch/difference") lines"
}

# same_bytes TREE TREE NAME. Special files hold no bytes: the manifest compares them.
same_bytes() {
  diff -r --no-dereference --exclude=special --exclude=beyond-tar "$1" "$2" >"$scratch/difference" && return
  head -n 20 "$scratch/difference" | cut -c 1-300
  die "$3: bytes differ"
}
