-- found: SET DEFAULT of an AUTO_INCREMENT column, which the server takes and leaves undone
-- [a]
CREATE TABLE k (id INT AUTO_INCREMENT PRIMARY KEY, b INT);
-- [a]
ALTER TABLE k ALTER id SET DEFAULT 255, ALGORITHM=INSTANT;
