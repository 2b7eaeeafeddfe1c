package artimon;

import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Path;

/** The name below which all processes of a host register, so that the agent on it watches one node. */
final class HostKey {
    private static final int MAX_LENGTH = 253;

    private HostKey() {
    }

    /** Returns {@code given}, else what the agent of this machine left in the drop-in folder, else the address. */
    static String choose(String given, Path dropin, String address) {
        String key = fit(given == null ? "" : given);
        key = key.isEmpty() ? read(dropin) : key;
        return key.isEmpty() ? fit(address) : key;
    }

    private static String fit(String text) {
        String key = text.trim().replaceAll("[^A-Za-z0-9._:-]", "_");
        key = key.length() > MAX_LENGTH ? key.substring(0, MAX_LENGTH) : key;
        return key.matches("\\.*") ? "" : key;
    }

    /** Reads the key from a file of the owner of the folder or of root; does not follow links. */
    private static String read(Path dropin) {
        Path file = dropin.resolve(".host");
        try {
            Object owner = Files.getAttribute(file, "unix:uid", LinkOption.NOFOLLOW_LINKS);
            boolean trusted = owner.equals(Files.getAttribute(dropin, "unix:uid")) || owner.equals(0);
            if (!trusted || !Files.isRegularFile(file, LinkOption.NOFOLLOW_LINKS)) {
                return "";
            }
            try (InputStream in = Files.newInputStream(file, LinkOption.NOFOLLOW_LINKS)) {
                return fit(new String(in.readNBytes(MAX_LENGTH + 2), StandardCharsets.US_ASCII));
            }
        } catch (IOException | UnsupportedOperationException | IllegalArgumentException error) {
            return "";
        }
    }
}
