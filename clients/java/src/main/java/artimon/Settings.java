package artimon;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.Properties;
import java.util.logging.Logger;

/** What system properties and the environment say. */
final class Settings {
    private static final Logger LOG = Logger.getLogger("artimon.bookkeeper");
    final String context;
    final String instance;
    final String zookeeper;
    final String host;
    final String advertise;
    final String bind;
    final Path run;
    final Path dropin;
    final boolean disabled;

    private Settings(Map<String, String> environment, Properties properties) {
        Source source = name -> {
            String value = properties.getProperty("artimon." + name);
            value = value == null ? environment.get("ARTIMON_" + name.toUpperCase(java.util.Locale.ROOT)) : value;
            return value == null || value.isEmpty() ? null : value;
        };
        String program = program(properties.getProperty("sun.java.command", ""));
        context = allowed("context", source.of("context"), program);
        instance = allowed("instance", source.of("instance"), null);
        zookeeper = orElse(source.of("zookeeper"), "127.0.0.1:2181");
        host = source.of("host");
        advertise = source.of("advertise");
        bind = source.of("bind");
        run = Path.of(orElse(source.of("run"), "/tmp/artimon-" + user()));
        dropin = Path.of(orElse(source.of("dropin"), "/var/run/artimon"));
        disabled = yes(source.of("disabled")) || yes(source.of("off"));
    }

    private interface Source {
        String of(String name);
    }

    static Settings read() {
        return read(System.getenv(), System.getProperties());
    }

    static Settings read(Map<String, String> environment, Properties properties) {
        return new Settings(environment, properties);
    }

    private static String allowed(String what, String given, String otherwise) {
        try {
            return given == null ? otherwise : Names.path(what, given);
        } catch (IllegalArgumentException error) {
            LOG.warning(error.getMessage() + "; " + otherwise + " is used instead");
            return otherwise;
        }
    }

    /** The simple name of the main class, or the name of the jar. */
    private static String program(String command) {
        String first = command.split(" ", 2)[0].replaceFirst("\\.jar$", "");
        String name = first.substring(Math.max(first.lastIndexOf('/'), first.lastIndexOf('.')) + 1);
        return name.matches("[A-Za-z0-9_$-]+") ? name : "java";
    }

    private static String orElse(String given, String otherwise) {
        return given == null ? otherwise : given;
    }

    private static boolean yes(String text) {
        return text != null && text.matches("(?i)1|true|yes|on");
    }

    private static Object user() {
        try {
            return Files.getAttribute(Path.of("/proc/self"), "unix:uid");
        } catch (java.io.IOException | UnsupportedOperationException | IllegalArgumentException error) {
            return System.getProperty("user.name");
        }
    }
}
