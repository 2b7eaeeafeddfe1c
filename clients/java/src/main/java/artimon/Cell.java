package artimon;

import artimon.bookkeeper.Kind;
import artimon.bookkeeper.VarType;
import java.util.Map;

/**
 * One variable. Written only inside {@code Variables.cells.compute} for its key, which makes writes exclusive; read by
 * polls at any time, so what changes is volatile.
 */
final class Cell {
    final String name;
    final Map<String, String> labels;
    final VarType type;
    volatile Kind kind = Kind.UNKNOWN;
    /** INTEGER: itself; DOUBLE: its bits; BOOLEAN: 0 or 1. */
    volatile long bits;
    volatile String text = "";

    Cell(String name, Map<String, String> labels, VarType type) {
        this.name = name;
        this.labels = labels;
        this.type = type;
    }

    double real() {
        return Double.longBitsToDouble(bits);
    }

    /** The one change of type that is allowed: a DOUBLE that goes on where this INTEGER is. */
    Cell widened() {
        Cell made = new Cell(name, labels, VarType.DOUBLE);
        made.bits = Double.doubleToRawLongBits((double) bits);
        made.kind = kind;
        return made;
    }
}
