#!/usr/bin/perl
# Asks Artimon for all variables of a name with some labels for the last milliseconds, and prints the matrix:
#
#     thrift --gen perl artimon/api/matrix.thrift          # makes the folder gen-perl
#     perl -I gen-perl clients/perl/matrix.pl 'memcached.*' 600000 dc=jb
#     perl -I gen-perl clients/perl/matrix.pl --query "fetch('memcached.items').sum(by=['dc'])"
#
# Where: ARTIMON_MATRIX=host:port, else 127.0.0.1:8781.
use strict;
use warnings;
use Thrift::Socket;
use Thrift::FramedTransport;
use Thrift::BinaryProtocol;
use artimon::Matrix;

@ARGV >= 2 or die "usage: $0 NAME MILLISECONDS [LABEL=VALUE ...] | --query TEXT\n";
my ($host, $port) = ($ENV{ARTIMON_MATRIX} // '127.0.0.1:8781') =~ /^(.+):(\d+)$/ or die "ARTIMON_MATRIX: host:port\n";

my $socket = Thrift::Socket->new($host, $port);
$socket->setRecvTimeout(30_000);                          # more than the server takes: 5 s for a turn and 20 s of work
my $transport = Thrift::FramedTransport->new($socket);    # framed, or the server hangs up
my $client = artimon::MatrixClient->new(Thrift::BinaryProtocol->new($transport));

my $answer = eval {
    $transport->open();
    $client->authenticate($ENV{ARTIMON_TOKEN}) if $ENV{ARTIMON_TOKEN};    # a token of `artimon tokens create`
    my ($first, $second, @labels) = @ARGV;
    $first eq '--query' ? $client->query($second, 0) : $client->fetch($first, {map { split /=/, $_, 2 } @labels}, $second);
};
if (my $problem = $@) {
    die $problem unless ref $problem;
    die "$problem->{message}\n" unless $problem->isa('artimon::Refused');
    my $place = $problem->{position} < 0 ? '' : " at character $problem->{position}";
    die "refused ($problem->{reason})$place: $problem->{message}\n";
}
$transport->close();

# Integers arrive as exact decimals, strings as the bytes of UTF-8. A value that is not present is missing.
my @lists = qw(integers doubles booleans strings);        # in the order of the enum Type
my @shown = (sub { shift }, sub { sprintf '%.17g', shift }, sub { shift() ? 'true' : 'false' }, \&escaped);
for my $row (@{$answer->{rows}}) {
    my ($values, $show) = ($row->{$lists[$row->{type}]}, $shown[$row->{type}]);
    my @cells = map { $row->{present}[$_] ? $show->($values->[$_]) : '-' } 0 .. $answer->{grid}{n} - 1;
    print join("\t", $row->{series}, @cells), "\n";
}
print STDERR 'note: ', escaped($_), "\n" for @{$answer->{notes}};

sub escaped {    # a text from anywhere must not break the line, nor move the cursor
    my $text = shift;
    $text =~ s/([\\\x00-\x1f\x7f])/$1 eq '\\' ? '\\\\' : $1 eq "\t" ? '\\t' : sprintf '\\x%02x', ord $1/ge;
    return $text;
}
