package artimon;

import artimon.bookkeeper.VarType;
import java.util.Map;

/**
 * Counts things in an application and serves them to Artimon.
 *
 * <pre>{@code
 * ArtimonBookKeeper.getInstance().addToIntegerVar("http.requests", Map.of("route", "/"), 1);
 * }</pre>
 *
 * Nothing else is needed: the first write starts a daemon thread that makes the process pollable and registers it with
 * ZooKeeper. No call waits for the network, and none throws: what cannot be carried out changes nothing and is counted
 * in the variable {@code bookkeeper.refused{reason=…}}. Settings are environment variables ({@code ARTIMON_ZOOKEEPER}, …)
 * or system properties ({@code -Dartimon.zookeeper=…}), which win.
 */
public final class ArtimonBookKeeper {
    private static final ArtimonBookKeeper INSTANCE = new ArtimonBookKeeper(new Variables());
    private final Variables variables;
    private volatile boolean begun;
    private Pollable pollable;

    ArtimonBookKeeper(Variables variables) {
        this.variables = variables;
    }

    /** The one of this process. */
    public static ArtimonBookKeeper getInstance() {
        return INSTANCE;
    }

    /** Sets an int64; a variable that is set is a gauge unless {@link #describe} says otherwise. */
    public void setIntegerVar(String name, Map<String, String> labels, long value) {
        variables.setInteger(name, labels, value);
        begin();
    }

    /** Adds, and returns the new value (0 if refused). A variable begins at 0; sums stop at the ends of int64. */
    public long addToIntegerVar(String name, Map<String, String> labels, long delta) {
        long value = variables.addInteger(name, labels, delta);
        begin();
        return value;
    }

    /** The value, null if there is no INTEGER of that name and labels. */
    public Long getIntegerVar(String name, Map<String, String> labels) {
        return variables.get(name, labels, VarType.INTEGER, cell -> cell.bits);
    }

    /** Ends the variable if it exists. */
    public void removeIntegerVar(String name, Map<String, String> labels) {
        variables.remove(name, labels, VarType.INTEGER);
    }

    /** Sets a float64; NaN and infinities are allowed. */
    public void setDoubleVar(String name, Map<String, String> labels, double value) {
        variables.setDouble(name, labels, value);
        begin();
    }

    /** Adds, and returns the new value (0.0 if refused, as NaN and infinities are). An INTEGER becomes a DOUBLE. */
    public double addToDoubleVar(String name, Map<String, String> labels, double delta) {
        double value = variables.addDouble(name, labels, delta);
        begin();
        return value;
    }

    /** The value, null if there is no DOUBLE of that name and labels. */
    public Double getDoubleVar(String name, Map<String, String> labels) {
        return variables.get(name, labels, VarType.DOUBLE, Cell::real);
    }

    /** Ends the variable if it exists. */
    public void removeDoubleVar(String name, Map<String, String> labels) {
        variables.remove(name, labels, VarType.DOUBLE);
    }

    /** Sets a boolean. */
    public void setBooleanVar(String name, Map<String, String> labels, boolean value) {
        variables.setBoolean(name, labels, value);
        begin();
    }

    /** The value, null if there is no BOOLEAN of that name and labels. */
    public Boolean getBooleanVar(String name, Map<String, String> labels) {
        return variables.get(name, labels, VarType.BOOLEAN, cell -> cell.bits != 0);
    }

    /** Ends the variable if it exists. */
    public void removeBooleanVar(String name, Map<String, String> labels) {
        variables.remove(name, labels, VarType.BOOLEAN);
    }

    /** Sets a text of at most 32 KiB of UTF-8. */
    public void setStringVar(String name, Map<String, String> labels, String value) {
        variables.setString(name, labels, value);
        begin();
    }

    /** The value, null if there is no STRING of that name and labels. */
    public String getStringVar(String name, Map<String, String> labels) {
        return variables.get(name, labels, VarType.STRING, cell -> cell.text);
    }

    /** Ends the variable if it exists. */
    public void removeStringVar(String name, Map<String, String> labels) {
        variables.remove(name, labels, VarType.STRING);
    }

    /** Tells what all variables of a name mean; {@code kind} is "counter", "gauge" or "" (then it is inferred). */
    public void describe(String name, String help, String unit, String kind) {
        variables.describe(name, help, unit, kind);
    }

    /** With true, refused calls throw {@link VariableRefused}: for an application's tests. */
    public void strict(boolean strict) {
        variables.strict = strict;
    }

    /** Makes the process pollable now instead of at the first write. */
    public void start() {
        begin();
    }

    /** What happens at exit: leaves ZooKeeper, serves one more poll for at most 5 s, closes. Counting still works. */
    public void close() {
        Pollable ended;
        synchronized (this) {
            begun = true;
            ended = pollable;
            pollable = null;
        }
        if (ended != null) {
            ended.close();
        }
    }

    private void begin() {
        if (!begun) {
            beginSlowly();
        }
    }

    private synchronized void beginSlowly() {
        if (begun) {
            return;
        }
        begun = true;
        Settings settings = Settings.read();
        if (settings.disabled) {
            return;
        }
        try {
            Pollable made = new Pollable(variables, settings);
            Runtime.getRuntime().addShutdownHook(new Thread(this::close, "artimon-last-poll"));
            made.start();
            pollable = made;
        } catch (IllegalStateException | OutOfMemoryError error) {
            return; // the process is ending, or the system gives no more threads: it only counts
        }
    }
}
