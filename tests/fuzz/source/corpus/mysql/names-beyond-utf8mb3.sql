-- found: a server's names and comments are utf8mb3: a character beyond it is a question mark, and the table was another
-- [a]
CREATE TABLE `e😀` (id INT PRIMARY KEY, `a😀` INT, b INT);
-- [a]
INSERT INTO `e😀` VALUES (1,2,3);
-- [a]
ALTER TABLE `e?` RENAME COLUMN `a😁` TO `c`;
-- [a]
INSERT INTO `e😀` VALUES (2,2,3);
-- [a]
CREATE TABLE e2 (id INT PRIMARY KEY, c ENUM('😀','b') CHARACTER SET utf8mb3, d ENUM('😀','b') CHARACTER SET ucs2, k INT);
-- [a]
INSERT INTO e2 VALUES (1,1,1,1),(2,2,2,2);
-- [a]
SET sql_mode='';
-- [a]
ALTER TABLE e2 ADD x VARCHAR(9) CHARACTER SET utf8mb3 DEFAULT ('😀'), ADD y VARCHAR(9) CHARACTER SET latin1 DEFAULT ('ź');
-- [a]
INSERT INTO e2 (id) VALUES (3);
-- [a]
SET GLOBAL binlog_row_metadata = FULL;
-- [a]
CREATE TABLE f (id INT PRIMARY KEY, `a😀` ENUM('😀','?') NOT NULL) COMMENT '😀';
-- [a]
INSERT INTO f VALUES (1,1),(2,2);
-- [a]
ALTER TABLE f ADD b VARCHAR(9) NOT NULL DEFAULT (_latin1 x'E9'), COMMENT 'x😀y', RENAME COLUMN `a😁` TO `c😀d`, ADD `z😀` INT COMMENT '😀';
-- [a]
INSERT INTO f VALUES (3,1,'x',1);
-- [a]
ALTER TABLE f MODIFY `z?` BIGINT COMMENT '😀' FIRST, DROP COLUMN `c😁d`;
-- [a]
INSERT INTO f VALUES (3,4,'x');
