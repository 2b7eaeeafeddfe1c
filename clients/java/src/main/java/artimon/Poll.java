package artimon;

import artimon.bookkeeper.Bookkeeper;
import artimon.bookkeeper.Columns;
import artimon.bookkeeper.Rows;
import artimon.bookkeeper.Schema;
import artimon.bookkeeper.Value;
import artimon.bookkeeper.VarType;
import artimon.bookkeeper.Variable;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.zip.CRC32;
import org.apache.thrift.TException;
import org.apache.thrift.protocol.TBinaryProtocol;
import org.apache.thrift.transport.TSocket;
import org.apache.thrift.transport.layered.TFramedTransport;

/**
 * Asks a process, whatever it is written in, for its variables, and prints them, one a line, sorted: type, name and labels,
 * value, with tabs between them.
 *
 * <p>{@code java artimon.Poll HOST PORT [rows|columns]}
 */
public final class Poll {
    private static final int TIMEOUT_MS = 10_000;

    private Poll() {}

    /** Exits with 1 if the process does not answer. */
    public static void main(String[] words) throws TException, IOException {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        try (TFramedTransport transport = new TFramedTransport(
                new TSocket(words[0], Integer.parseInt(words[1]), TIMEOUT_MS))) {
            transport.open();
            Bookkeeper.Client client = new Bookkeeper.Client(new TBinaryProtocol(transport));
            boolean columns = words.length > 2 && words[2].equals("columns");
            List<String> lines = columns ? lines(client.getColumns(ByteBuffer.allocate(0), null)) : lines(client.getVars());
            lines.stream().sorted().forEach(out::println);
        }
    }

    private static List<String> lines(Rows rows) {
        List<String> lines = new ArrayList<>();
        for (Variable one : rows.getVariables()) {
            Value value = one.getValue();
            Object shown = value.isSetInteger() ? (Object) value.getInteger() : value.isSetDbl() ? (Object) value.getDbl()
                    : value.isSetTruth() ? (Object) value.isTruth() : value.getStr();
            lines.add(line(one.getType(), one.getName(), one.getLabels(), shown));
        }
        return lines;
    }

    private static List<String> lines(Columns columns) throws IOException {
        CRC32 sum = new CRC32();
        sum.update(columns.getValues());
        if ((int) sum.getValue() != ByteBuffer.wrap(columns.getCrc()).order(ByteOrder.LITTLE_ENDIAN).getInt()) {
            throw new IOException("the sum of the values is not what was told");
        }
        Schema schema = columns.getSchema();
        ByteBuffer values = ByteBuffer.wrap(columns.getValues()).order(ByteOrder.LITTLE_ENDIAN);
        List<String> lines = new ArrayList<>();
        for (int i = 0; i < schema.getNamesSize(); i++) {
            VarType type = VarType.findByValue(schema.getTypes()[i]);
            long cell = values.getLong(8 * i);
            Object shown = type == VarType.INTEGER ? (Object) cell : type == VarType.DOUBLE
                    ? (Object) Double.longBitsToDouble(cell) : type == VarType.BOOLEAN
                    ? (Object) (cell != 0) : columns.getStrings().get((int) cell);
            lines.add(line(type, schema.getNames().get(i), schema.getLabels().get(i), shown));
        }
        return lines;
    }

    private static String line(VarType type, String name, Map<String, String> labels, Object value) {
        StringBuilder pairs = new StringBuilder();
        new TreeMap<>(labels).forEach((label, text) -> {
            pairs.append(pairs.length() == 0 ? "" : ",").append(label).append("=\"").append(escaped(text)).append('"');
        });
        String shown = value instanceof String ? '"' + escaped((String) value) + '"' : value.toString();
        return type + "\t" + name + "{" + pairs + "}\t" + shown;
    }

    private static String escaped(String text) {
        return text.replace("\\", "\\\\").replace("\"", "\\\"").replace("\n", "\\n");
    }
}
