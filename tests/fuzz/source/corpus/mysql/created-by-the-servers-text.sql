-- found: CREATE TABLE … SELECT is logged in the server's words, with question marks for members beyond utf8mb3
-- [a]
CREATE TABLE a (id INT PRIMARY KEY, e ENUM('😀','b','?'), v VARCHAR(9) DEFAULT ('😀'), i INT DEFAULT 2.5e0, j INT DEFAULT 2.5);
-- [a]
INSERT INTO a (id, e) VALUES (1, 1);
-- [a]
CREATE TABLE b AS SELECT * FROM a;
-- [a]
INSERT INTO b (id, e) VALUES (2, 1), (3, 3);
