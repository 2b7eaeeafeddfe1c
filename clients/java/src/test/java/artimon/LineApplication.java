package artimon;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Map;

/**
 * An application that does what lines on its standard input say, and answers each with a line; it ends at their end.
 *
 * <p>add NAME N | set NAME X | text NAME WORD | flag NAME true | drop NAME
 */
final class LineApplication {
    private static final Map<String, String> LABELS = Map.of("part", "x");

    private LineApplication() {}

    public static void main(String[] arguments) throws IOException {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            out.println(carriedOut(line.split(" ")));
        }
    }

    private static Object carriedOut(String[] words) {
        ArtimonBookKeeper book = ArtimonBookKeeper.getInstance();
        switch (words[0]) {
            case "add":
                return book.addToIntegerVar(words[1], LABELS, Long.parseLong(words[2]));
            case "set":
                book.setDoubleVar(words[1], LABELS, Double.parseDouble(words[2]));
                return book.getDoubleVar(words[1], LABELS);
            case "text":
                book.setStringVar(words[1], LABELS, words[2]);
                return book.getStringVar(words[1], LABELS);
            case "flag":
                book.setBooleanVar(words[1], LABELS, Boolean.parseBoolean(words[2]));
                return book.getBooleanVar(words[1], LABELS);
            case "drop":
                book.removeIntegerVar(words[1], LABELS);
                return "dropped";
            default:
                return "add, set, text, flag or drop";
        }
    }
}
