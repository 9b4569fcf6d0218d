package kdi.storage;

import io.delta.storage.HDFSLogStore;
import java.io.File;
import java.io.FileOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.FileSystemException;
import java.nio.file.Files;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Set;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Delta's log in a folder, safe for any number of drivers: a commit is a hard link to a complete file.
 *
 * <p>Delta's own store looks first whether the file exists and then renames, and a rename on a local disk replaces the
 * file of another JVM that came between. A link fails if its name is taken. Reading, listing and replacing stay Delta's;
 * so does {@code isPartialWriteVisible}, by which Delta writes checkpoints under another name and renames them.
 *
 * <p>Source: POSIX, "link"; Delta protocol, "Delta Log Entries".
 */
public final class LinkLogStore extends HDFSLogStore {
    private static final Logger LOG = LoggerFactory.getLogger(LinkLogStore.class);
    private static final AtomicBoolean WARNED = new AtomicBoolean();
    /** What Linux and macOS say where there are no links: EPERM, ENOTSUP, ENOSYS of FUSE, and 524 of NFS on Linux. */
    private static final Set<String> NO_LINKS =
            Set.of("Operation not permitted", "Operation not supported", "Function not implemented", "Unknown error 524");

    public LinkLogStore(Configuration configuration) {
        super(configuration);
    }

    @Override
    public void write(Path path, Iterator<String> actions, Boolean overwrite, Configuration configuration)
            throws IOException {
        FileSystem files = path.getFileSystem(configuration);
        FileSystem raw = files instanceof LocalFileSystem local ? local.getRaw() : files;
        // Where another class stands for "file", a path need not be a file of the same name.
        boolean isHadoops = raw.getClass() == RawLocalFileSystem.class || raw instanceof LocalFiles.Raw;
        if (overwrite || !isHadoops) {
            super.write(path, actions, overwrite, configuration);
            return;
        }
        List<String> lines = new ArrayList<>(); // may be written twice
        actions.forEachRemaining(lines::add);
        RawLocalFileSystem disk = (RawLocalFileSystem) raw;
        File temporary = disk.pathToFile(createTempPath(path));
        try {
            write(temporary, lines, configuration);
            // Of an earlier file with this name: a reader would compare the new one with it.
            Files.deleteIfExists(disk.pathToFile(new Path(path.getParent(), "." + path.getName() + ".crc")).toPath());
            if (linked(disk.pathToFile(path), temporary)) {
                return;
            }
        } finally {
            temporary.delete(); // what stays, as after a kill, begins with a dot: no reader of a log looks at it
        }
        if (!WARNED.getAndSet(true)) {
            LOG.warn("{}: no hard links here. Only one driver at a time may commit to this folder.", path);
        }
        super.write(path, lines.iterator(), false, configuration);
    }

    /** Whether the name is now a link to the complete file; false where there are no hard links. */
    private static boolean linked(File target, File temporary) throws IOException {
        try {
            Files.createLink(target.toPath(), temporary.toPath());
        } catch (FileAlreadyExistsException taken) {
            // NFS repeats a request whose answer was lost, and the repetition fails on our own link.
            if (!Files.isSameFile(target.toPath(), temporary.toPath())) {
                throw taken;
            }
        } catch (UnsupportedOperationException none) {
            return false;
        } catch (FileSystemException refused) {
            if (!NO_LINKS.contains(String.valueOf(refused.getReason()))) {
                throw refused; // e.g. of a full or broken disk: Delta's way does not exclude another driver
            }
            return false;
        }
        return true;
    }

    private static void write(File file, List<String> lines, Configuration configuration) throws IOException {
        try (FileOutputStream stream = new FileOutputStream(file)) {
            for (String line : lines) {
                stream.write((line + "\n").getBytes(StandardCharsets.UTF_8));
            }
            stream.getFD().sync(); // after a power failure the name must not be there without the content
        }
        FsPermission permissions = FsPermission.getFileDefault().applyUMask(FsPermission.getUMask(configuration));
        Files.setPosixFilePermissions(file.toPath(), PosixFilePermissions.fromString(permissions.toString()));
    }
}
