package artimon;

import java.io.IOException;
import java.net.URLEncoder;
import java.nio.channels.FileChannel;
import java.nio.channels.FileLock;
import java.nio.channels.OverlappingFileLockException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.PosixFilePermissions;

/**
 * An instance name that no other live process of the context on this host has: {@code j0}, {@code j1}, … by a lock that
 * ends with the process, so a restarted one gets its name back. The letter keeps Java's names apart from those of Python,
 * whose locks are of another kind.
 */
final class Instance {
    private static final int NUMBERS = 10_000;
    final String name;
    private final FileLock lock;

    private Instance(String name, FileLock lock) {
        this.name = name;
        this.lock = lock;
    }

    /** The lowest free one. IOException says which folder cannot be used. */
    static Instance take(Path run, String context) throws IOException {
        Path folder = folder(run, context);
        for (int number = 0; number < NUMBERS; number++) {
            FileLock lock = lock(folder.resolve("j" + number + ".lock"));
            if (lock != null) {
                return new Instance("j" + number, lock);
            }
        }
        throw new IOException(folder + ": all " + NUMBERS + " names are held: set ARTIMON_INSTANCE by hand");
    }

    /** Gives the name back. */
    void close() throws IOException {
        lock.channel().close();
    }

    private static Path folder(Path run, String context) throws IOException {
        var mine = PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rwx------"));
        Files.createDirectories(run, mine);
        Path home = Path.of("/proc/self");
        boolean own = !Files.exists(home) || Files.getOwner(run, LinkOption.NOFOLLOW_LINKS).equals(Files.getOwner(home));
        if (!Files.isDirectory(run, LinkOption.NOFOLLOW_LINKS) || !own) {
            throw new IOException(run + " is not a folder of this user: set ARTIMON_RUN");
        }
        String quoted = URLEncoder.encode(context, StandardCharsets.UTF_8).replace("+", " ").replace("*", "%2A");
        return Files.createDirectories(run.resolve("instances").resolve(quoted), mine);
    }

    private static FileLock lock(Path file) throws IOException {
        FileChannel channel = FileChannel.open(
                file, StandardOpenOption.CREATE, StandardOpenOption.WRITE, LinkOption.NOFOLLOW_LINKS);
        FileLock lock = null;
        try {
            lock = channel.tryLock();
        } catch (OverlappingFileLockException held) {
            lock = null; // by this very process
        } finally {
            if (lock == null) {
                channel.close();
            }
        }
        return lock;
    }
}
