package artimon;

import artimon.bookkeeper.Bookkeeper;
import artimon.bookkeeper.Columns;
import artimon.bookkeeper.Endpoint;
import artimon.bookkeeper.Kind;
import artimon.bookkeeper.Poller;
import artimon.bookkeeper.Rows;
import artimon.bookkeeper.Schema;
import artimon.bookkeeper.Value;
import artimon.bookkeeper.VarType;
import artimon.bookkeeper.Variable;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CountDownLatch;
import java.util.function.Function;
import java.util.zip.CRC32;

/** Answers polls: the service of bookkeeper.thrift over the variables of this process. */
final class Polls implements Bookkeeper.Iface {
    /** Counted down once any poll was answered, and once one whose values were read after `closeSoon` was. */
    final CountDownLatch polled = new CountDownLatch(1);
    final CountDownLatch lastPoll = new CountDownLatch(1);
    private final Variables variables;
    private final Endpoint identity;
    private final ThreadLocal<Boolean> last = ThreadLocal.withInitial(() -> false);
    private volatile boolean closing;
    private Layout layout; // guarded by this

    /** The variables at one version, in one order. */
    private static final class Layout {
        final long version;
        final List<Cell> cells;
        final Schema schema;
        final byte[] id;

        Layout(long version, List<Cell> cells, Schema schema, byte[] id) {
            this.version = version;
            this.cells = cells;
            this.schema = schema;
            this.id = id;
        }
    }

    Polls(Variables variables, Endpoint identity) {
        this.variables = variables;
        this.identity = identity;
    }

    void closeSoon() {
        closing = true;
    }

    /** A reply has left, in this thread. */
    void replied() {
        polled.countDown();
        if (last.get()) {
            lastPoll.countDown();
        }
    }

    @Override
    public Rows getVars() {
        last.set(closing);
        Map<String, Variables.Description> told = variables.described();
        List<Variable> rows = new ArrayList<>();
        for (Cell cell : variables.all()) {
            Variable row = new Variable(cell.name, cell.labels, cell.type, cell.kind, value(cell));
            Variables.Description description = told.get(cell.name);
            if (description != null) {
                row.setHelp(description.help);
                row.setUnit(description.unit);
            }
            rows.add(row);
        }
        return new Rows(now(), rows);
    }

    @Override
    public Columns getColumns(ByteBuffer known, Poller poller) {
        last.set(closing);
        Layout layout = layout();
        Map<String, Long> strings = new LinkedHashMap<>();
        ByteBuffer values = ByteBuffer.allocate(8 * layout.cells.size()).order(ByteOrder.LITTLE_ENDIAN);
        for (Cell cell : layout.cells) {
            boolean text = cell.type == VarType.STRING;
            values.putLong(text ? strings.computeIfAbsent(cell.text, same -> (long) strings.size()) : cell.bits);
        }
        values.flip();
        CRC32 sum = new CRC32();
        sum.update(values.array());
        ByteBuffer crc = ByteBuffer.allocate(4).order(ByteOrder.LITTLE_ENDIAN).putInt((int) sum.getValue());
        crc.flip();
        byte[] texts = layout.id;
        Columns answer = new Columns(now(), ByteBuffer.wrap(texts), values, new ArrayList<>(strings.keySet()), crc);
        if (known == null || !known.equals(ByteBuffer.wrap(texts))) {
            answer.setSchema(layout.schema);
        }
        if (poller != null && poller.getName() != null) {
            answer.setPoller(poller.getName()); // whoever asks has its turn
        }
        return answer;
    }

    private Endpoint now() {
        Endpoint told = identity.deepCopy();
        told.setTime_ms(System.currentTimeMillis());
        return told;
    }

    private static Value value(Cell cell) {
        switch (cell.type) {
            case INTEGER:
                return new Value().setInteger(cell.bits);
            case DOUBLE:
                return new Value().setDbl(cell.real());
            case BOOLEAN:
                return new Value().setTruth(cell.bits != 0);
            default:
                return new Value().setStr(cell.text);
        }
    }

    private synchronized Layout layout() {
        long version = variables.version.get(); // before the cells: at worst the next poll makes it anew
        if (layout == null || layout.version != version) {
            layout = made(version);
        }
        return layout;
    }

    private Layout made(long version) {
        List<Cell> cells = variables.all();
        cells.sort(Comparator.<Cell, VarType>comparing(cell -> cell.type).thenComparing(cell -> cell.name)
                .thenComparing(cell -> cell.labels.toString()));
        byte[] types = new byte[cells.size()];
        byte[] kinds = new byte[cells.size()];
        List<String> names = new ArrayList<>();
        List<Map<String, String>> labels = new ArrayList<>();
        for (int i = 0; i < types.length; i++) {
            Cell cell = cells.get(i);
            Kind kind = cell.kind;
            types[i] = (byte) cell.type.getValue();
            kinds[i] = (byte) kind.getValue();
            names.add(cell.name);
            labels.add(cell.labels);
        }
        Map<String, String> help = told(names, description -> description.help);
        Map<String, String> units = told(names, description -> description.unit);
        Schema schema = new Schema(names, labels, ByteBuffer.wrap(types), ByteBuffer.wrap(kinds), help, units);
        String text = names.size() + "\n" + names + labels + help + units;
        return new Layout(version, cells, schema, digest(text, types, kinds));
    }

    private Map<String, String> told(List<String> names, Function<Variables.Description, String> part) {
        Map<String, Variables.Description> descriptions = variables.described();
        Map<String, String> found = new TreeMap<>();
        for (String name : names) {
            Variables.Description description = descriptions.get(name);
            if (description != null && !part.apply(description).isEmpty()) {
                found.put(name, part.apply(description));
            }
        }
        return new HashMap<>(found);
    }

    private static byte[] digest(String text, byte[] types, byte[] kinds) {
        try {
            MessageDigest state = MessageDigest.getInstance("SHA-256");
            state.update(types);
            state.update(kinds);
            return Arrays.copyOf(state.digest(text.getBytes(StandardCharsets.UTF_8)), 16);
        } catch (NoSuchAlgorithmException impossible) {
            throw new IllegalStateException(impossible); // every Java has it
        }
    }
}
