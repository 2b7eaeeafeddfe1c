package artimon;

/** A call that was not carried out: counted as {@code bookkeeper.refused{reason=…}}, thrown only in strict mode. */
public final class VariableRefused extends IllegalArgumentException {
    private static final long serialVersionUID = 1L;
    private final String reason;

    VariableRefused(String reason, String text) {
        super(text);
        this.reason = reason;
    }

    /** One of name, labels, type, value, saturated, limit, describe, settings. */
    public String reason() {
        return reason;
    }
}
