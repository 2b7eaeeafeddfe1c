package artimon;

import java.nio.charset.StandardCharsets;
import java.util.Collections;
import java.util.Map;
import java.util.TreeMap;
import java.util.regex.Pattern;

/** What names and labels may be: the same for every language. */
final class Names {
    static final int NAME_BYTES = 255;
    static final int LABELS = 40;
    static final int VALUE_BYTES = 1024;
    private static final Pattern NAME = Pattern.compile("[a-zA-Z_][a-zA-Z0-9_.:/-]*");
    private static final Pattern LABEL = Pattern.compile("[a-zA-Z_][a-zA-Z0-9_]*");

    private Names() {}

    /** Throws VariableRefused unless a variable may have this name. */
    static void check(String name) {
        if (name == null || !NAME.matcher(name).matches() || name.length() > NAME_BYTES) {
            String told = "variable name " + shown(name) + ": begin with a letter or _, then use letters, digits and";
            throw new VariableRefused("name", told + " _ . : / - only, at most " + NAME_BYTES);
        }
    }

    /** A sorted copy without empty values, as they mean that the label is absent. Throws VariableRefused. */
    static Map<String, String> checked(String name, Map<String, String> labels) {
        TreeMap<String, String> kept = new TreeMap<>();
        for (Map.Entry<String, String> entry : labels.entrySet()) {
            String label = entry.getKey();
            String value = entry.getValue();
            if (label == null || !LABEL.matcher(label).matches() || label.startsWith("__") || label.length() > NAME_BYTES) {
                String told = name + ": label name " + shown(label) + ": begin with a letter or _ but not with __, then";
                throw new VariableRefused("labels", told + " use letters, digits and _ only");
            }
            if (value == null) {
                throw new VariableRefused("labels", name + ": label " + label + " is null: leave it out");
            }
            check(name, label, value);
            if (!value.isEmpty()) {
                kept.put(label, value);
            }
        }
        if (kept.size() > LABELS) {
            throw new VariableRefused("labels", name + ": " + kept.size() + " labels: use at most " + LABELS);
        }
        return Collections.unmodifiableMap(kept);
    }

    private static void check(String name, String label, String value) {
        if (!StandardCharsets.UTF_8.newEncoder().canEncode(value)) {
            throw new VariableRefused("labels", name + ": label " + label + " has a lone surrogate: remove it");
        }
        int size = value.getBytes(StandardCharsets.UTF_8).length;
        if (size > VALUE_BYTES) {
            String told = name + ": label " + label + " has a value of " + size + " bytes: use at most " + VALUE_BYTES;
            throw new VariableRefused("labels", told);
        }
    }

    /** The text itself if it may stand in a path of ZooKeeper, else IllegalArgumentException. */
    static String path(String what, String text) {
        boolean bad = text.isEmpty() || text.equals(".") || text.equals("..")
                || text.getBytes(StandardCharsets.UTF_8).length > NAME_BYTES
                || text.chars().anyMatch(c -> c == '/' || c < 0x20 || c >= 0x7f && c < 0xa0 || c >= 0xd800 && c <= 0xf8ff);
        if (bad) {
            throw new IllegalArgumentException(what + " " + shown(text) + ": no / and no control characters, 1 to 255 bytes");
        }
        return text;
    }

    private static String shown(String text) {
        return text == null ? "null" : '"' + (text.length() > 80 ? text.substring(0, 80) + "…" : text) + '"';
    }
}
