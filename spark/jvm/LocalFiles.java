/*
 * Hadoop's files of the local disk, except that a file's mode is set by this process.
 *
 * Hadoop's own starts `chmod` for it, once for each file and once for each checksum of one, where its native library is missing, as
 * it is from PySpark. That is a fifth of a small commit's cost.
 *
 * Spark's own compiler of Java, Janino, reads this (spark/jvm/java.py).
 */

import java.io.IOException;
import java.lang.reflect.Method;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.attribute.PosixFilePermissions;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

public class LocalFiles extends LocalFileSystem {
  public LocalFiles() {
    super(new Raw());
  }

  /** Become the answer of FileSystem.get for local files. A class that this process made up cannot be named by a setting:
   *  their reader knows the classes of the jars alone. */
  public void takeOver(Configuration settings) throws Exception {
    URI local = URI.create("file:///");
    initialize(local, settings);
    Class[] given = new Class[] {URI.class, Configuration.class, FileSystem.class};
    Method put = FileSystem.class.getDeclaredMethod("addFileSystemForTesting", given);
    put.setAccessible(true);
    put.invoke(null, new Object[] {local, settings, this});
  }

  private static class Raw extends RawLocalFileSystem {
    public void setPermission(Path file, FsPermission mode) throws IOException {
      if (mode.getStickyBit()) {
        super.setPermission(file, mode);  // Java knows no such bit
      } else {
        String ofAll = mode.getUserAction().SYMBOL + mode.getGroupAction().SYMBOL + mode.getOtherAction().SYMBOL;
        Files.setPosixFilePermissions(pathToFile(file).toPath(), PosixFilePermissions.fromString(ofAll));
      }
    }
  }
}
