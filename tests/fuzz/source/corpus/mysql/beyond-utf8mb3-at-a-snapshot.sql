-- found: a snapshot's model had question marks for members beyond utf8mb3: the log's rows had them, the copy's had not
-- [a]
CREATE TABLE e (id INT PRIMARY KEY,
 a VARCHAR(20) DEFAULT ('😀é'),
 b ENUM('😀','b','?','x😁y') NOT NULL,
 c SET('😀','é','?') CHARACTER SET utf16,
 d ENUM('😁','?') CHARACTER SET gb18030 DEFAULT '😁',
 f VARCHAR(20) DEFAULT (_latin1 x'E9'),
 g VARCHAR(50) GENERATED ALWAYS AS (concat(a,'😀')),
 h VARBINARY(20) DEFAULT ('😀'),
 i VARCHAR(20) CHARACTER SET sjis DEFAULT (_sjis x'955c'),
 j INT COMMENT 'x 😀',
 `k😀` INT
) COMMENT 't 😀';
-- [a]
INSERT INTO e (id,b,c,d) VALUES (1,1,1,1);
-- [reader]
begin
-- [a]
INSERT INTO e (id,b,c,d) VALUES (2,2,7,2),(3,3,2,1),(4,4,4,2);
-- [a]
UPDATE e SET b=4 WHERE id=1;
