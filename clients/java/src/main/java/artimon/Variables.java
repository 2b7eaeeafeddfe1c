package artimon;

import artimon.bookkeeper.Kind;
import artimon.bookkeeper.VarType;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Function;
import java.util.function.UnaryOperator;
import java.util.logging.Logger;

/** All variables of a process. Safe in threads; nothing here does I/O but the log, at most once a minute a reason. */
final class Variables {
    static final int MAX_VARIABLES = 100_000;
    static final int STRING_BYTES = 32 * 1024;
    static final String REFUSED = "bookkeeper.refused";
    private static final long LOG_EVERY_NS = 60_000_000_000L;
    private static final Logger LOG = Logger.getLogger("artimon.bookkeeper");

    /** What `describe` told of a name. */
    static final class Description {
        final String help;
        final String unit;
        final Kind kind;

        Description(String help, String unit, Kind kind) {
            this.help = help;
            this.unit = unit;
            this.kind = kind;
        }
    }

    private static final class Key {
        final String name;
        final Map<String, String> labels;

        Key(String name, Map<String, String> labels) {
            this.name = name;
            this.labels = labels;
        }

        @Override
        public boolean equals(Object other) {
            return other instanceof Key && name.equals(((Key) other).name) && labels.equals(((Key) other).labels);
        }

        @Override
        public int hashCode() {
            return Objects.hash(name, labels);
        }
    }

    /** Changes whenever a variable comes, goes, or changes its type, kind or description. */
    final AtomicLong version = new AtomicLong();
    volatile boolean strict;
    private final int limit;
    private final ConcurrentHashMap<Key, Cell> cells = new ConcurrentHashMap<>();
    private final ConcurrentHashMap<String, Description> descriptions = new ConcurrentHashMap<>();
    private final ConcurrentHashMap<String, Long> logged = new ConcurrentHashMap<>();

    Variables(int limit) {
        this.limit = limit;
    }

    Variables() {
        this(MAX_VARIABLES);
    }

    // Writing. Each returns what the variable is then, or `otherwise` if the call was refused.

    long addInteger(String name, Map<String, String> labels, long offset) {
        boolean[] saturated = {false};
        Cell cell = write(name, labels, VarType.INTEGER, now -> {
            long sum = now.bits + offset;
            if (((now.bits ^ sum) & (offset ^ sum)) < 0) {
                saturated[0] = true;
                sum = offset > 0 ? Long.MAX_VALUE : Long.MIN_VALUE;
            }
            return change(now, sum, offset >= 0 && now.kind != Kind.GAUGE ? Kind.COUNTER : Kind.GAUGE);
        });
        if (saturated[0]) {
            refuse(new VariableRefused("saturated", name + " left the range of int64 and stays at its end"));
        }
        return cell == null ? 0 : cell.bits;
    }

    void setInteger(String name, Map<String, String> labels, long value) {
        write(name, labels, VarType.INTEGER, now -> change(now, value, Kind.GAUGE));
    }

    double addDouble(String name, Map<String, String> labels, double offset) {
        if (Double.isNaN(offset) || Double.isInfinite(offset)) {
            refuse(new VariableRefused("value", name + ": adding " + offset + " would spoil the sum for ever: set it"));
            return 0.0;
        }
        Cell cell = write(name, labels, VarType.DOUBLE, now -> {
            long bits = Double.doubleToRawLongBits(now.real() + offset);
            return change(now, bits, offset >= 0 && now.kind != Kind.GAUGE ? Kind.COUNTER : Kind.GAUGE);
        });
        return cell == null ? 0.0 : cell.real();
    }

    void setDouble(String name, Map<String, String> labels, double value) {
        write(name, labels, VarType.DOUBLE, now -> change(now, Double.doubleToRawLongBits(value), Kind.GAUGE));
    }

    void setBoolean(String name, Map<String, String> labels, boolean value) {
        write(name, labels, VarType.BOOLEAN, now -> change(now, value ? 1 : 0, Kind.GAUGE));
    }

    void setString(String name, Map<String, String> labels, String value) {
        if (value == null || value.getBytes(StandardCharsets.UTF_8).length > STRING_BYTES) {
            refuse(new VariableRefused("value", name + ": give a text of at most " + STRING_BYTES + " bytes"));
            return;
        }
        write(name, labels, VarType.STRING, now -> {
            now.text = value;
            return change(now, 0, Kind.GAUGE);
        });
    }

    private Cell change(Cell cell, long bits, Kind inferred) {
        Description told = descriptions.get(cell.name);
        Kind kind = told != null && told.kind != Kind.UNKNOWN ? told.kind : inferred;
        cell.bits = bits;
        if (cell.kind != kind) {
            cell.kind = kind;
            version.incrementAndGet();
        }
        return cell;
    }

    /** What `change` makes of the variable; a copy of the cell as it was then, null if the call was refused. */
    private Cell write(String name, Map<String, String> labels, VarType type, UnaryOperator<Cell> change) {
        try {
            Names.check(name);
            Map<String, String> kept = Names.checked(name, labels == null ? Collections.emptyMap() : labels);
            Cell[] after = {null};
            cells.compute(new Key(name, kept), (key, now) -> {
                Cell cell = change.apply(fitting(key, now, type));
                after[0] = new Cell(name, kept, type);
                after[0].bits = cell.bits;
                return cell;
            });
            return after[0];
        } catch (VariableRefused error) {
            refuse(error);
            return null;
        }
    }

    /** The cell to write to, made or widened if need be. Throws VariableRefused. */
    private Cell fitting(Key key, Cell now, VarType type) {
        if (now != null && now.type == type) {
            return now;
        }
        if (now != null && !(now.type == VarType.INTEGER && type == VarType.DOUBLE)) {
            String told = key.name + " " + key.labels + " is " + now.type + ", not " + type;
            throw new VariableRefused("type", told + ": use one type for a variable, or another name");
        }
        if (now == null && cells.mappingCount() >= limit && !key.name.equals(REFUSED)) {
            String told = key.name + ": this process has " + limit + " variables, use fewer label values";
            throw new VariableRefused("limit", told);
        }
        version.incrementAndGet();
        return now == null ? new Cell(key.name, key.labels, type) : now.widened();
    }

    // Reading.

    /** A part of the variable of exactly that type, null if there is none. */
    <T> T get(String name, Map<String, String> labels, VarType type, Function<Cell, T> part) {
        try {
            Cell cell = cells.get(new Key(name, Names.checked(name, labels == null ? Collections.emptyMap() : labels)));
            return cell == null || cell.type != type ? null : part.apply(cell);
        } catch (VariableRefused | NullPointerException error) {
            return null;
        }
    }

    void remove(String name, Map<String, String> labels, VarType type) {
        try {
            Key key = new Key(name, Names.checked(name, labels == null ? Collections.emptyMap() : labels));
            cells.computeIfPresent(key, (same, now) -> now.type == type ? null : now);
            version.incrementAndGet();
        } catch (VariableRefused | NullPointerException error) {
            return; // there is none of that name
        }
    }

    List<Cell> all() {
        return new ArrayList<>(cells.values());
    }

    Map<String, Description> described() {
        return new HashMap<>(descriptions);
    }

    // Telling.

    void describe(String name, String help, String unit, String kind) {
        try {
            Names.check(name);
            Kind told = kind == null || kind.isEmpty() ? Kind.UNKNOWN : kind.equals("counter") ? Kind.COUNTER
                    : kind.equals("gauge") ? Kind.GAUGE : null;
            if (told == null) {
                throw new VariableRefused("describe", name + ": kind " + kind + ": give \"counter\" or \"gauge\"");
            }
            descriptions.put(name, new Description(help == null ? "" : help, unit == null ? "" : unit, told));
            cells.values().stream().filter(cell -> cell.name.equals(name) && told != Kind.UNKNOWN).forEach(c -> c.kind = told);
            version.incrementAndGet();
        } catch (VariableRefused error) {
            refuse(error);
        }
    }

    /** Counts a refusal and logs it at most once a minute for each reason; in strict mode throws it. */
    void refuse(VariableRefused error) {
        Map<String, String> labels = Collections.singletonMap("reason", error.reason());
        boolean raise = strict;
        cells.compute(new Key(REFUSED, labels), (key, now) -> {
            if (now != null && now.type != VarType.INTEGER) {
                return now; // the program uses the name for something else
            }
            Cell cell = fitting(key, now, VarType.INTEGER);
            return change(cell, cell.bits + 1, Kind.COUNTER);
        });
        if (raise) {
            throw error;
        }
        long now = System.nanoTime();
        Long before = logged.get(error.reason());
        if (before == null || now - before >= LOG_EVERY_NS) {
            logged.put(error.reason(), now);
            LOG.warning(error.getMessage() + " (refused; further ones are only counted)");
        }
    }
}
