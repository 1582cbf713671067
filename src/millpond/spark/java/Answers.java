package millpond.spark;

/** How Python's answers are told from its refusals: a text that begins with "!" says why there is no answer. */
public class Answers {
  /** An IllegalArgumentException is what PySpark shows without a page of Java. */
  public static Object checked(Object answer) {
    if (answer instanceof String && ((String) answer).startsWith("!")) {
      throw new IllegalArgumentException(((String) answer).substring(1));
    }
    return answer;
  }
}
