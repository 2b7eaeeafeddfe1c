package artimon;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.Properties;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

final class SettingsTest {
    @Test
    void propertiesWinOverTheEnvironmentAndThatOverDefaults() {
        Properties properties = new Properties();
        properties.setProperty("sun.java.command", "com.example.shop.Main --port 1");
        Settings settings = Settings.read(Map.of(), properties);
        assertEquals("Main", settings.context);
        assertEquals("127.0.0.1:2181", settings.zookeeper);
        assertNull(settings.instance);
        assertFalse(settings.disabled);
        settings = Settings.read(Map.of("ARTIMON_CONTEXT", "env", "ARTIMON_DISABLED", "1"), properties);
        assertEquals("env", settings.context);
        assertTrue(settings.disabled);
        properties.setProperty("artimon.context", "hand");
        assertEquals("hand", Settings.read(Map.of("ARTIMON_CONTEXT", "env"), properties).context);
        properties.setProperty("artimon.context", "a/b");
        assertEquals("Main", Settings.read(Map.of(), properties).context);
    }

    @Test
    void instancesAreTheLowestFreeOnesOfTheirContext(@TempDir Path folder) throws IOException {
        Instance first = Instance.take(folder, "shop ü/");
        Instance second = Instance.take(folder, "shop ü/");
        assertEquals("j0", first.name);
        assertEquals("j1", second.name);
        assertEquals("j0", Instance.take(folder, "other").name);
        first.close();
        assertEquals("j0", Instance.take(folder, "shop ü/").name);
    }

    @Test
    void aNumberIsHeldAsLongAsItsProcessCanBePolled(@TempDir Path folder) throws Exception {
        Properties properties = new Properties();
        properties.setProperty("artimon.run", folder.toString());
        properties.setProperty("artimon.context", "shop");
        properties.setProperty("artimon.zookeeper", "127.0.0.1:1");
        Pollable pollable = new Pollable(new Variables(), Settings.read(Map.of(), properties));
        pollable.start();
        while (pollable.instance == null) { // nobody else may hold a number meanwhile: it would take the next one
            Thread.sleep(10);
        }
        for (int i = 0; i < 5; i++) {
            System.gc();
            Thread.sleep(10);
            assertEquals("j1", free(folder));
        }
        pollable.close();
    }

    private static String free(Path folder) throws IOException {
        Instance lowest = Instance.take(folder, "shop");
        lowest.close();
        return lowest.name;
    }

    @Test
    void aLinkInThePlaceOfTheFolderIsRefused(@TempDir Path folder) throws IOException {
        Files.createDirectory(folder.resolve("real"));
        Path link = Files.createSymbolicLink(folder.resolve("link"), folder.resolve("real"));
        assertThrows(IOException.class, () -> Instance.take(link, "shop"));
    }
}
