#!/usr/bin/perl
# A load that keeps a ledger, and the check of what a file system holds against it.
#
#     ledger.pl load DIR LEDGER SEED       until the file system is gone
#     ledger.pl verify DIR LEDGER
#
# Before an operation the ledger says "?", after its success "!": what has a "!" must be there, what has only a "?"
# (at most the last) may have happened or not. Each load has its own folder and is its only writer.
use strict;
use warnings;
use Fcntl;

my ($mode, $dir, $ledger, $seed) = @ARGV;

# A file's bytes follow from its number: small ones, some of several strips.
sub content {
    my ($n) = @_;
    my $length = $n % 11 == 0 ? 200_000 + $n % 1000 : $n % 7 == 0 ? 0 : ($n * 7919) % 24_000;
    my $line = "file $n: " . ($n * 2654435761 % 4294967296) . "\n";
    return substr($line x ($length / length($line) + 1), 0, $length);
}

if ($mode eq 'load') {
    open my $log, '>>', $ledger or die "$ledger: $!";
    my @names;    # what exists, oldest first
    my $n = 0;
    srand $seed;
    # Says what is about to be done, does it, says that it is done; the file system's end is this load's end.
    my $step = sub {
        my ($what, $do) = @_;
        syswrite $log, "? $what\n";
        if (!$do->()) { syswrite $log, "# $!\n"; exit 0 }
        syswrite $log, "! $what\n";
    };
    for (;;) {
        my $draw = rand;
        if ($draw < 0.6 || @names < 10) {
            $n++;
            my $bytes = content($n);
            $step->("create f$n $n", sub {
                sysopen(my $file, "$dir/f$n", O_CREAT | O_EXCL | O_WRONLY) or return 0;
                my $at = 0;
                while ($at < length $bytes) {
                    my $took = syswrite $file, $bytes, 65536, $at;
                    if (!defined $took) { my $why = $!; close $file; $! = $why; return 0 }
                    $at += $took;
                }
                return close $file;
            });
            push @names, "f$n";
        } elsif ($draw < 0.75) {
            my $i = int rand @names;
            my $to = $names[$i] . "r";
            $step->("rename $names[$i] $to", sub { rename "$dir/$names[$i]", "$dir/$to" });
            $names[$i] = $to;
        } elsif ($draw < 0.95) {
            my ($name) = splice @names, int rand @names, 1;
            $step->("unlink $name", sub { unlink "$dir/$name" });
        } else {
            $n++;
            $step->("mkdir d$n", sub { mkdir "$dir/d$n" });
        }
    }
}

if ($mode eq 'verify') {
    open my $log, '<', $ledger or die "$ledger: $!";
    my (%files, %folders, $doubt);
    my $done = 0;
    while (<$log>) {
        next if /^#/;
        my ($mark, $what, $name, $more) = split;
        if ($mark eq '?') { $doubt = [$what, $name, $more]; next }
        $doubt = undef;
        $done++;
        if    ($what eq 'create') { $files{$name} = $more }
        elsif ($what eq 'rename') { $files{$more} = delete $files{$name} }
        elsif ($what eq 'unlink') { delete $files{$name} }
        elsif ($what eq 'mkdir')  { $folders{$name} = 1 }
    }
    my %listed;
    opendir my $list, $dir or die "$dir: $!\n";
    while (my $name = readdir $list) { $listed{$name}++ unless $name =~ /^\.\.?$/ }
    my @wrong;
    # The one operation in doubt: settle by what is there, which must be one or the other.
    if ($doubt) {
        my ($what, $name, $more) = @$doubt;
        if ($what eq 'create') { delete $listed{$name} }    # its bytes may be cut anywhere
        elsif ($what eq 'mkdir') { delete $listed{$name} }
        elsif ($what eq 'unlink') { delete $files{$name} unless $listed{$name} }
        elsif ($what eq 'rename' && $listed{$more}) {
            push @wrong, "$name: renamed to $more, and still there" if $listed{$name};
            $files{$more} = delete $files{$name};
        }
    }
    for my $name (sort keys %files) {
        my $times = delete $listed{$name} // 0;
        push @wrong, "$name: listed $times times" if $times != 1;
        my $want = content($files{$name});
        my $got = '';
        if (open my $file, '<', "$dir/$name") {
            local $/;
            $got = <$file> // '';
        } else {
            push @wrong, "$name: $!";
            next;
        }
        push @wrong, "$name: holds " . length($got) . " bytes, not the " . length($want) . " that were written" if $got ne $want;
    }
    for my $name (sort keys %folders) {
        push @wrong, "$name: the folder is not there" unless delete $listed{$name} && -d "$dir/$name";
    }
    push @wrong, map { "$_: is there, and should not be" } sort keys %listed;
    print "$_\n" for @wrong[0 .. ($#wrong > 19 ? 19 : $#wrong)];
    printf "%d operations acknowledged, %d files, %d folders, %s\n", $done, scalar keys %files, scalar keys %folders,
        @wrong ? @wrong . " wrong" : "all there";
    exit(@wrong ? 1 : 0);
}
die "usage: ledger.pl load DIR LEDGER SEED | verify DIR LEDGER\n";
