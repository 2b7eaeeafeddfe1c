#!/usr/bin/perl
# Asks a process, whatever it is written in, for its variables, and prints them, one a line, sorted: type, name and labels,
# value, with tabs between them.
#
#     thrift --gen perl bookkeeper/bookkeeper.thrift       # makes the folder gen-perl
#     perl -I gen-perl clients/perl/poll.pl HOST PORT [rows|columns]
use strict;
use warnings;
use Compress::Zlib qw(crc32);
use Thrift::Socket;
use Thrift::FramedTransport;
use Thrift::BinaryProtocol;
use Bookkeeper;

@ARGV >= 2 or die "usage: $0 HOST PORT [rows|columns]\n";
my ($host, $port, $form) = @ARGV;
my @types = qw(INTEGER DOUBLE BOOLEAN STRING);            # in the order of the enum VarType
my @fields = qw(integer dbl truth str);

my $socket = Thrift::Socket->new($host, $port);
$socket->setRecvTimeout(10_000);
my $transport = Thrift::FramedTransport->new($socket);    # framed, or the server hangs up
my $client = BookkeeperClient->new(Thrift::BinaryProtocol->new($transport));
my @lines = eval {
    $transport->open();
    ($form // 'rows') eq 'columns' ? columns($client->getColumns('', undef)) : rows($client->getVars());
};
die ref $@ ? "$@->{message}\n" : $@ if $@;
$transport->close();
print sort @lines;

sub rows {
    return map { line($_->{type}, $_->{name}, $_->{labels}, $_->{value}{$fields[$_->{type}]}) } @{$_[0]{variables}};
}

sub columns {
    my $answer = shift;
    my ($schema, $values) = @$answer{qw(schema values)};
    crc32($values) == unpack('L<', $answer->{crc}) or die "the sum of the values is not what was told\n";
    my @types_of = unpack 'C*', $schema->{types};
    my @formats = ('q<', 'd<', 'q<', 'q<');
    my $at = 0;
    return map {
        my ($i, $value) = ($at, unpack $formats[$types_of[$at]], substr $values, 8 * $at, 8);
        $at++;
        line($types_of[$i], $_, $schema->{labels}[$i], $types_of[$i] == 3 ? $answer->{strings}[$value] : $value);
    } @{$schema->{names}};
}

sub line {
    my ($type, $name, $labels, $value) = @_;
    my $pairs = join ',', map { "$_=\"" . escaped($labels->{$_}) . '"' } sort keys %$labels;
    my @shown = (sub { shift }, sub { sprintf '%.17g', shift }, sub { shift() ? 'true' : 'false' }, sub { '"' . escaped(shift) . '"' });
    return "$types[$type]\t$name\{$pairs}\t" . $shown[$type]->($value) . "\n";
}

sub escaped {    # as in the canonical text of a variable
    my $text = shift;
    $text =~ s/([\\"\n])/$1 eq "\n" ? '\\n' : "\\$1"/ge;
    return $text;
}
